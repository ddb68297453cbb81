// The warpgroups of cuda/weight_norm/split.cuh that split A and B into pairs of float16.
#pragma once

#include "cuda/packed_elements.cuh"
#include "cuda/weight_norm/rows.cuh"
#include "cuda/weight_norm/split_fragments.cuh"
#include "cuda/weight_norm/split_memory.cuh"

namespace dorajit::kernels {

template <WeightNormConfig kConfig, ElementType... kTypes>
struct SplitProducer : SplitShape {
  using Op = WeightNormOperands<kTypes...>;
  using LoraA = Element<Op::kType[Op::kLoraA]>;
  using LoraB = Element<Op::kType[Op::kLoraB]>;

  static constexpr int kWarpRows = kDepth / 4;  // rows of a tile per warp

  static __device__ __forceinline__ float factor_at(const KernelArguments& arguments,
                                                    const Task& task, int row, int k) {
    const OperandArgument& operand = arguments.operands[Op::kLoraB];
    if (task.first_row + row >= arguments.sizes[kNormRows] || k >= task.rank) return 0;
    return LoraB::widen(static_cast<const typename LoraB::Bits*>(
        operand.data)[(task.first_row + row) * operand.row_stride + k]);
  }

  // Splits `count` rows of B with `warps` warps: row i % 64 of block first_block + i / 64. If B is
  // streamed, they are written to stage `stage`.
  template <int kAtOnce>
  static __device__ __forceinline__ void split_factor(const KernelArguments& arguments,
                                                      const Task& task, const Memory& memory,
                                                      int first_block, int count, int stage,
                                                      int warp, int warps) {
    const int lane = threadIdx.x % 32;
#pragma unroll 1
    for (int first = warp; first < count; first += kAtOnce * warps) {
      float values[kAtOnce][2];
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        const int i = first + u * warps;
        const int k = (first_block + i / kRows) * kDepth + lane;
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          values[u][e] = i < count ? factor_at(arguments, task, i % kRows, k + 32 * e) : 0;
        }
      }
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        const int i = first + u * warps;
        if (i >= count) break;
        const int block = first_block + i / kRows;
        const int row = i % kRows;
        const unsigned mine[2] = {__float_as_uint(values[u][0]) & kAbsoluteBits,
                                  __float_as_uint(values[u][1]) & kAbsoluteBits};
        const unsigned greatest =
            __reduce_max_sync(0xffffffffu, mine[0] > mine[1] ? mine[0] : mine[1]);
        const bool is_finite = greatest < kInfinityBits;
        const int exponent = is_finite ? split_exponent(greatest) : 0;
        const float scale = is_finite ? split_scale(exponent) : __uint_as_float(0x7fc00000u);
        unsigned high;
        unsigned low;
        split_pair(values[u][0] * scale, values[u][1] * scale, high, low);
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int k = lane + 32 * e;
          const unsigned to =
              memory.factor(block, stage) + row * kRowBytes + (k / 8 ^ row % 8) * 16 + k % 8 * 2;
          store_half(to, high >> 16 * e);
          store_half(to + kFactorHalf, low >> 16 * e);
        }
        if (lane == 0) {
          store_word(memory.row_exponents(block, stage) + row * 4, static_cast<unsigned>(exponent));
        }
      }
    }
  }

  // Four neighbouring elements of a row of A.
  using Quad = PackedElements<typename LoraA::Bits, 4>;
  using Tile = Quad[kWarpRows];  // per warp: rows 4 i + warp, columns 4 lane to 4 lane + 3

  // The address of this lane's part of a tile.
  static __device__ __forceinline__ const typename LoraA::Bits* tile_address(
      const OperandArgument& operand, int tile, int block) {
    return static_cast<const typename LoraA::Bits*>(operand.data) +
           (block * kDepth + threadIdx.x / 32 % 4) * operand.row_stride +
           static_cast<long long>(tile) * kColumns + threadIdx.x % 32 * 4;
  }

  // Loads the rows of the first kSteps steps of 16. Elements beyond A are zeros.
  template <int kSteps>
  static __device__ __forceinline__ void load_rows(const KernelArguments& arguments,
                                                   const Task& task, int tile, int block,
                                                   Tile& values) {
    const OperandArgument& operand = arguments.operands[Op::kLoraA];
    const auto* from = tile_address(operand, tile, block);
    const long long left = arguments.sizes[kNormColumns] - static_cast<long long>(tile) * kColumns;
    const long long step = 4 * operand.row_stride;
    if (kConfig.vector_width >= 4 && left >= kColumns &&
        block * kDepth + 16 * kSteps <= task.rank) {
#pragma unroll
      for (int i = 0; i < 4 * kSteps; ++i, from += step) {
        values[i] = *reinterpret_cast<const Quad*>(from);
      }
    } else {
      const int rows = task.rank - block * kDepth - static_cast<int>(threadIdx.x / 32 % 4);
#pragma unroll
      for (int i = 0; i < 4 * kSteps; ++i, from += step) {
        values[i] = {};
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          if (4 * i < rows && static_cast<int>(threadIdx.x % 32 * 4) + e < left) {
            values[i].put(e, from[e]);
          }
        }
      }
    }
  }

  static __device__ __forceinline__ void wait_for_group(int group) {
    if (group == 0) {
      asm volatile("bar.sync 1, %0;" ::"n"(kGroupThreads) : "memory");
    } else {
      asm volatile("bar.sync 2, %0;" ::"n"(kGroupThreads) : "memory");
    }
  }

  // The greater magnitude, or NaN if either is NaN.
  static __device__ __forceinline__ float greater_magnitude(float a, float b) {
    float greater;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(greater) : "f"(fabsf(a)), "f"(fabsf(b)));
    return greater;
  }

  // The exponent of a tile, computed by the four warps that hold it.
  template <int kSteps>
  static __device__ __forceinline__ int find_exponent(const Memory& memory, int group, int turn,
                                                      const Tile& values) {
    unsigned greatest = 0;
    unsigned least = kAbsoluteBits;
#pragma unroll
    for (int i = 0; i < 4 * kSteps; ++i) {
      const Quad& quad = values[i];
      const float of_lane = greater_magnitude(
          greater_magnitude(LoraA::widen(quad.get(0)), LoraA::widen(quad.get(1))),
          greater_magnitude(LoraA::widen(quad.get(2)), LoraA::widen(quad.get(3))));
      const unsigned of_row = __reduce_max_sync(0xffffffffu, __float_as_uint(of_lane));
      greatest = of_row > greatest ? of_row : greatest;
      // For a row of zeros, the subtraction wraps around to the greatest number.
      least = of_row - 1 < least ? of_row - 1 : least;
    }
    const int warp = threadIdx.x / 32 % 4;
    if (threadIdx.x % 32 == 0) {
      store_word(memory.exchange(group, turn, warp), greatest);
      store_word(memory.exchange(group, turn, warp) + 4, least);
    }
    wait_for_group(group);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const auto other_greatest = static_cast<unsigned>(load_word(memory.exchange(group, turn, i)));
      const auto other_least =
          static_cast<unsigned>(load_word(memory.exchange(group, turn, i) + 4));
      greatest = other_greatest > greatest ? other_greatest : greatest;
      least = other_least < least ? other_least : least;
    }
    if (greatest >= kInfinityBits) return kUnsplit;
    const int exponent = split_exponent(greatest);
    return greatest > 0 && exponent - split_exponent(least + 1) > kMaxSpread ? kUnsplit : exponent;
  }

  template <int kSteps>
  static __device__ __forceinline__ void write_rows(unsigned to, int exponent, const Tile& values) {
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32 % 4;
    const float scale = split_scale(exponent);
    const unsigned at = to + lane / 16 * kDepth * kRowBytes + warp * kRowBytes + lane % 2 * 8;
    const unsigned chunk[2] = {at + static_cast<unsigned>((lane % 16 / 2 ^ warp) * 16),
                               at + static_cast<unsigned>((lane % 16 / 2 ^ (warp + 4)) * 16)};
#pragma unroll
    for (int i = 0; i < 4 * kSteps; ++i) {
      unsigned high[2];
      unsigned low[2];
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        split_pair(LoraA::widen(values[i].get(2 * e)) * scale,
                   LoraA::widen(values[i].get(2 * e + 1)) * scale, high[e], low[e]);
      }
      const unsigned into = chunk[i % 2] + i * 4 * kRowBytes;
      store_words(into, high[0], high[1]);
      store_words(into + kTileHalf, low[0], low[1]);
    }
  }

  static __device__ __forceinline__ void load_tile(const KernelArguments& arguments,
                                                   const Task& task, int tile, int block,
                                                   Tile& values) {
    switch (task.steps(block)) {
      case 1:
        return load_rows<1>(arguments, task, tile, block, values);
      case 2:
        return load_rows<2>(arguments, task, tile, block, values);
      case 3:
        return load_rows<3>(arguments, task, tile, block, values);
      default:
        return load_rows<4>(arguments, task, tile, block, values);
    }
  }

  // Writes a tile to a stage once the stage is empty; returns the tile's exponent.
  template <int kSteps>
  static __device__ __forceinline__ int split_rows(const Memory& memory, int group, int turn,
                                                   int stage, unsigned parity, const Tile& values) {
    const int exponent = find_exponent<kSteps>(memory, group, turn, values);
    memory.stages().empty(stage).wait(parity);
    if (exponent != kUnsplit) write_rows<kSteps>(memory.stage(stage), exponent, values);
    return exponent;
  }

  static __device__ __forceinline__ int split_tile(const Memory& memory, int group, int turn,
                                                   int steps, int stage, unsigned parity,
                                                   const Tile& values) {
    switch (steps) {
      case 1:
        return split_rows<1>(memory, group, turn, stage, parity, values);
      case 2:
        return split_rows<2>(memory, group, turn, stage, parity, values);
      case 3:
        return split_rows<3>(memory, group, turn, stage, parity, values);
      default:
        return split_rows<4>(memory, group, turn, stage, parity, values);
    }
  }

  // Copies a tile and its exponent to the other program of the pair.
  static __device__ __forceinline__ void send_tile(const Memory& memory, int stage, int steps) {
    const Barrier full{memory.stages().full(stage).address + memory.peer};
    const unsigned bytes = steps * 16 * kRowBytes;
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // blocks of 64 columns, high and low
      const unsigned from = memory.stage(stage) + i * kDepth * kRowBytes;
      copy_in_pair(from + memory.peer, from, bytes, full);
    }
    copy_in_pair(memory.tile_exponent(stage) + memory.peer, memory.tile_exponent(stage), 16, full);
  }

  // Extends the phase of a stage's barrier until the tile from the other program has arrived.
  static __device__ __forceinline__ void expect_tile(const Memory& memory, int slab, int steps) {
    const int stage = slab % kConfig.stages;
    memory.stages().empty(stage).wait(slab / kConfig.stages % 2 ^ 1);
    memory.stages().full(stage).arrive_and_expect(4 * steps * 16 * kRowBytes + 16);
  }

  // Splits this group's tiles of the sequence: the programs of a pair take turns, and so do the
  // groups of a program. If B is streamed, each program splits its own rows of B.
  static __device__ __forceinline__ void split_tiles(const KernelArguments& arguments,
                                                     const Task& task, const Memory& memory,
                                                     int group) {
    constexpr int kTurns = 2 * kSplitters;
    // The parity of a barrier does not distinguish the last two uses of a stage: a group that waits
    // for a stage must know that the use before the last one is over.
    static_assert(kTurns <= kConfig.stages);
    const int blocks = task.blocks();
    const int slabs = task.slabs();
    const int mine = static_cast<int>(pair_rank());
    Tile values;
    int tile = task.first_tile;
    int block = 2 * group + mine;
    const auto settle = [&] {
      while (block >= blocks) {
        block -= blocks;
        ++tile;
      }
    };
    settle();
    if (2 * group + mine < slabs) load_tile(arguments, task, tile, block, values);
#pragma unroll 1
    for (int first = 2 * group; first < slabs; first += kTurns) {
      const int slab = first + mine;
      const int slab_of_other = first + (mine ^ 1);
      if (slab < slabs) {
        const int stage = slab % kConfig.stages;
        const unsigned parity = slab / kConfig.stages % 2 ^ 1;
        const int exponent =
            split_tile(memory, group, first / kTurns % 2, task.steps(block), stage, parity, values);
        const bool is_first = threadIdx.x % kGroupThreads == 0;
        if (is_first) {
          store_word(memory.tile_exponent(stage), static_cast<unsigned>(exponent));
        }
        publish_shared_stores();
        wait_for_group(group);
        if (is_first) {
          memory.stages().full(stage).arrive();
          send_tile(memory, stage, task.steps(block));
        }
      }
      if (slab_of_other < slabs && threadIdx.x % kGroupThreads == 0) {
        expect_tile(memory, slab_of_other, task.steps(slab_of_other % blocks));
      }
      if (memory.streams) stream_factor(arguments, task, memory, first, slabs);
      block += kTurns;
      settle();
      if (slab + kTurns < slabs) load_tile(arguments, task, tile, block, values);
    }
  }

  // Splits B for slab `first` and the next slab.
  static __device__ __forceinline__ void stream_factor(const KernelArguments& arguments,
                                                       const Task& task, const Memory& memory,
                                                       int first, int slabs) {
#pragma unroll 1
    for (int slab = first; slab < first + 2 && slab < slabs; ++slab) {
      const int stage = slab % kConfig.stages;
      memory.stages().empty(stage).wait(slab / kConfig.stages % 2 ^ 1);
      split_factor<4>(arguments, task, memory, slab % task.blocks(), kRows, stage,
                      threadIdx.x / 32 % 4, 4);
      publish_shared_stores();
      memory.stages().full(stage).arrive();
    }
  }
};

}  // namespace dorajit::kernels
