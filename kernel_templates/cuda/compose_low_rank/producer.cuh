// The transfers of compose_low_rank with wgmma between global and shared memory. One thread calls
// each function.
#pragma once

#include "cuda/async_copy.cuh"
#include "cuda/compose_low_rank/tiles.cuh"

namespace dorajit::kernels {

// The tensor maps of a kernel, in the order of templates/compose_low_rank_launch.cc. A box of `low`
// has the rows of a tile, a box of lora_B has as many rows as a tile has columns, and the other
// boxes have the rows of a group's share of a tile.
struct LowRankMaps {
  TensorMap low;
  TensorMap lora_b;
  TensorMap result;
  TensorMap out;
  TensorMap inner;
};

template <class Tiles>
struct LowRankProducer {
  using Memory = typename Tiles::Memory;
  using Task = typename Tiles::Task;
  using Tile = typename Tiles::Tile;

  // Loads the factors of all tiles, for both groups.
  static __device__ __forceinline__ void load_factors(const Task& task, const Memory& memory,
                                                      const LowRankMaps& maps) {
    PipelineState<Tiles::kStages> at;
    for (int i = task.first; i < task.tiles; i += task.step) {
      const Tile tile = task.tile(i);
      for (int step = 0; step < task.rank_stages; ++step) {
        const Barrier full = memory.stages().full(at.index);
        const unsigned stage = memory.stage(at.index);
        memory.stages().acquire(at);
        full.arrive_and_expect(Tiles::kStageBytes);
        copy_box(stage, maps.low, step * kLowRankStep, tile.row, full);
        copy_box(stage + Tiles::kLowBytes, maps.lora_b, step * kLowRankStep, tile.column, full);
        at.advance();
      }
    }
  }

  static __device__ __forceinline__ void load_strip(const Memory& memory, int group, int strip,
                                                    const Tile& tile, const TensorMap& result) {
    constexpr int kBytes = Tiles::kGroupRows * Tiles::kStrip * kLowRankSize<Tiles::kResultType>;
    const Barrier full = memory.strip_full(group, strip);
    full.arrive_and_expect(kBytes);
#pragma unroll
    for (int i = 0; i < Tiles::kStrip; i += kLowRankBoxColumns<Tiles::kResultType>) {
      copy_box(memory.template strip<Tiles::kResultType>(group, 0, strip) +
                   i * Tiles::kGroupRows * kLowRankSize<Tiles::kResultType>,
               result, tile.column + strip * Tiles::kStrip + i, tile.row, full);
    }
  }

  template <ElementType kOwn>
  static __device__ __forceinline__ void store_strip(const Memory& memory, int group, int offset,
                                                     int strip, const Tile& tile,
                                                     const TensorMap& map) {
#pragma unroll
    for (int i = 0; i < Tiles::kStrip; i += kLowRankBoxColumns<kOwn>) {
      store_box(map, tile.column + strip * Tiles::kStrip + i, tile.row,
                memory.template strip<kOwn>(group, offset, strip) +
                    i * Tiles::kGroupRows * kLowRankSize<kOwn>);
    }
  }

  // Loads the results of a group's tiles, and stores the composed outputs. A strip is refilled once
  // all its outputs have left shared memory, so that separate output buffers are free, too.
  static __device__ __forceinline__ void move_results(const Task& task, const Memory& memory,
                                                      int group, const LowRankMaps& maps) {
    unsigned parity = 0;
    int i = task.first_of(group);
    if (i >= task.tiles) return;
    for (int strip = 0; strip < Tiles::kStrips; ++strip) {
      load_strip(memory, group, strip, task.tile_of(group, i), maps.result);
    }
    for (; i < task.tiles; i += task.step_of_group()) {
      const int next = i + task.step_of_group();
      const Tile tile = task.tile_of(group, i);
#pragma unroll 1
      for (int strip = 0; strip < Tiles::kStrips; ++strip) {
        memory.strip_composed(group, strip).wait(parity);
        store_strip<Tiles::kOutType>(memory, group, Tiles::kOutOffset, strip, tile, maps.out);
        if constexpr (Tiles::kHasInner) {
          store_strip<Tiles::kInnerType>(memory, group, Tiles::kInnerOffset, strip, tile,
                                         maps.inner);
        }
        end_stored_boxes();
        if (next < task.tiles) {
          wait_for_stored_boxes<0>();
          load_strip(memory, group, strip, task.tile_of(group, next), maps.result);
        }
      }
      parity ^= 1;
    }
    wait_for_stored_boxes<0>();
  }
};

}  // namespace dorajit::kernels
