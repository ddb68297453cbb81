// compose_low_rank with wgmma, for factors of one 16-bit type: sm_90a.
//
// There are as many programs as multiprocessors; each program loops over tiles. One warp loads
// tiles of both factors by TMA, 64 of the rank at a time, into a ring of buffers. Two warpgroups
// multiply: either each computes half of the rows of the same tile, or they take turns with
// different tiles, so that one multiplies while the other composes. For each warpgroup, another
// warp loads the tile of the result in strips of 64 columns, and stores the outputs.
//
// Every matrix and its rows are aligned to 16 bytes. Rows of result and outputs are multiples of 16
// bytes long, because TMA stores whole units of 16 bytes.
//
// Measured on an H100 at rank 384 and slower by 4% to 29%: pairs of programs that share the tile of
// lora_B, prefetching the result a tile ahead into L2, and keeping a tile of `low` for several
// tiles of the result. Evicting loaded results first is slower, too.
#pragma once

#include "cuda/compose_low_rank/epilogue.cuh"
#include "cuda/compose_low_rank/producer.cuh"
#include "cuda/compose_low_rank/tiles.cuh"
#include "cuda/main_loop.cuh"

namespace dorajit::kernels {

template <LowRankConfig kConfig, ElementType... kTypes>
struct ComposeLowRankWgmma {
  using Tiles = LowRankTiles<kConfig, kTypes...>;
  using Producer = LowRankProducer<Tiles>;
  using Epilogue = LowRankEpilogue<Tiles>;
  using Memory = typename Tiles::Memory;
  using Task = typename Tiles::Task;
  using Products = typename Tiles::Products;
  using Maps = LowRankMaps;
  static constexpr int kThreads = Tiles::kThreads;
  static constexpr int kPrograms = 1;  // per multiprocessor

  // The products of this group's rows of a tile, over the whole rank in ascending order.
  static __device__ __forceinline__ void multiply(const Task& task, const Memory& memory, int group,
                                                  PipelineState<Tiles::kStages>& at,
                                                  Products& products) {
    const int first_row = Tiles::kByTurns ? 0 : group * Tiles::kGroupRows;
    const auto start = [&](int step, int stage) {
      const unsigned base = memory.stage(stage);
      const unsigned long long low = describe_tile(base + first_row * kLowRankRowBytes, 16);
      const unsigned long long factor = describe_tile(base + Tiles::kLowBytes, 16);
#pragma unroll
      for (int i = 0; i < kLowRankStep / 16; ++i) {
#pragma unroll
        for (int slab = 0; slab < Tiles::kSlabs; ++slab) {
          multiply_rows<Tiles::kFactorType>(products[slab],
                                            later_tile(low, slab * 64 * kLowRankRowBytes + i * 32),
                                            later_tile(factor, i * 32), step + i > 0);
        }
      }
    };
    multiply_stages(memory.stages(), task.rank_stages, at, products, start, [&] {
      if constexpr (Tiles::kByTurns) {
        // Every warp arrives. Otherwise the other group could signal the next turn before a warp of
        // this group has seen the current one, and that warp would miss it.
        __syncwarp();
        if (threadIdx.x % 32 == 0) memory.turn(group ^ 1).arrive();
      }
    });
  }

  // Multiplies and composes all tiles of a group.
  static __device__ __forceinline__ void multiply_and_compose(const KernelArguments& arguments,
                                                              const Task& task,
                                                              const Memory& memory, int group) {
    const ComposeResidual<float> formula(arguments.scalars);
    PipelineState<Tiles::kStages> at;
    const auto leave_tile_to_other = [&] {
      if constexpr (Tiles::kByTurns) {
        for (int step = 0; step < task.rank_stages; ++step) at.advance();
      }
    };
    if (group == 1) leave_tile_to_other();
    unsigned parity = 0;
    Products products = {};
#pragma unroll 1
    for (int i = task.first_of(group); i < task.tiles; i += task.step_of_group()) {
      typename Epilogue::template ColumnValues<kLowRankGain> gain;
      typename Epilogue::template ColumnValues<kLowRankBias> bias;
      gain.load(arguments, task.tile(i));
      bias.load(arguments, task.tile(i));
      // A barrier distinguishes only two phases: a thread that waits for a stage must know that the
      // previous phase is over, which here the other group has seen. Group 0 starts at once.
      if constexpr (Tiles::kByTurns) memory.turn(group).wait(parity ^ group ^ 1);
      multiply(task, memory, group, at, products);
      leave_tile_to_other();
      Epilogue::publish_columns(memory, group, gain, bias);
      Epilogue::compose(formula, memory, group, parity, products);
      parity ^= 1;
    }
  }

  static __device__ __forceinline__ void run(const KernelArguments& arguments, const Maps& maps) {
    // A swizzled box must be aligned to 1024 bytes.
    extern __shared__ __align__(1024) unsigned char aligned_memory[];
    const Memory memory{shared_address(aligned_memory)};
    const Task task(arguments);
    if (threadIdx.x == 0) {
      prefetch_map(maps.low);
      prefetch_map(maps.lora_b);
      prefetch_map(maps.result);
      prefetch_map(maps.out);
      memory.initialise_barriers();
    }
    __syncthreads();
    const int group = static_cast<int>(threadIdx.x) / Tiles::kGroupThreads;
    if (group < kLowRankGroups) {
      take_registers<232>();
      multiply_and_compose(arguments, task, memory, group);
    } else {
      leave_registers<40>();
      const int warp = static_cast<int>(threadIdx.x) % Tiles::kGroupThreads / 32;
      if (threadIdx.x % 32 != 0) return;
      if (warp < kLowRankGroups) {
        Producer::move_results(task, memory, warp, maps);
      } else if (warp == kLowRankGroups) {
        Producer::load_factors(task, memory, maps);
      }
    }
  }
};

}  // namespace dorajit::kernels
