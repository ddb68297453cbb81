// weight_norm by wgmma for f32 factors and mixed ones: sm_90a.
//
// Programs come in pairs, with 64 rows each, and multiply the same tiles of A: 64 of the rank by
// 128 columns. In turns, groups of four warps of either program load a tile, scale it by a power of
// two, write it to a ring in shared memory as pairs of float16, high and low, and copy it to the
// other program. A third group of each multiplies: low * high, high * low and high * high, by rows
// of B that are split in the same way, with a scale for each row and each 64 of the rank. It takes
// the sums of a block of the rank back to the scale of the data as it adds them, then adds W,
// squares and sums in registers.
//
// A pair of float16 is off by up to 2^-39 of the greatest magnitude of its tile. Where the rows of
// a tile differ so much that this could be seen in the norm, and with an infinity or NaN, the block
// is multiplied in fp32 instead.
#pragma once

#include "cuda/async_copy.cuh"
#include "cuda/norm_fragments.cuh"
#include "cuda/packed_elements.cuh"
#include "cuda/program_pair.cuh"
#include "cuda/split_fragments.cuh"
#include "cuda/weight_norm_rows.cuh"
#include "cuda/wgmma.cuh"
#include "weight_norm_config.h"

namespace dorajit::kernels {

template <WeightNormConfig kConfig, ElementType... kTypes>
struct WeightNormSplit {
  using Op = WeightNormOperands<kTypes...>;
  using Weight = Element<Op::kType[Op::kWeight]>;
  using LoraA = Element<Op::kType[Op::kLoraA]>;
  using LoraB = Element<Op::kType[Op::kLoraB]>;
  using NormSums = NormFragments<2>;

  static constexpr int kRows = kSplitRows;
  static constexpr int kColumns = kSplitColumns;
  static constexpr int kDepth = kNormRankBlock;
  static_assert(kConfig.rows == kRows && kConfig.columns == kColumns && kColumns == kWgmmaColumns);
  static constexpr int kGroupThreads = 128;
  static constexpr int kSplitters = 2;  // groups
  static constexpr int kThreads = (1 + kSplitters) * kGroupThreads;
  static constexpr int kRowBytes = 128;
  static constexpr int kTileHalf = kSplitTileBytes / 2;      // high, and then low
  static constexpr int kFactorHalf = kSplitFactorBytes / 2;  // the same
  static constexpr int kWarpRows = kDepth / 4;               // of a tile, of a warp

  static constexpr ElementType kWeightType = Op::kType[Op::kWeight];
  static constexpr int kTilesAhead = 4;  // of W, on their way to the L2 cache
  // Whether there are registers for a tile of W while products are in flight.
  static constexpr bool kLoadsEarly =
      size_in_bytes(kWeightType) == 2 || size_in_bytes(Op::kType[Op::kLoraA]) == 4;

  // Of a tile: its rows differ by more than this, in powers of two, or are not all finite.
  static constexpr int kMostSpread = 7;
  static constexpr int kUnsplit = 1 << 20;  // the exponent of such a tile

  struct Task {
    long long first_row;
    int first_tile;
    int last_tile;
    int rank;  // 0 where B A does not count

    __device__ __forceinline__ int blocks() const { return (rank + kDepth - 1) / kDepth; }
    __device__ __forceinline__ int slabs() const { return (last_tile - first_tile) * blocks(); }
    // Sixteens of the rank that a block has.
    __device__ __forceinline__ int steps(int block) const {
      const int left = rank - block * kDepth;
      return left < kDepth ? (left + 15) / 16 : kDepth / 16;
    }
  };

  struct Memory {
    unsigned base;
    int stage_bytes;
    unsigned factors;
    unsigned exponents;  // of rows of B
    bool streams;
    unsigned peer;  // from an address here to the same place in the other program of the pair

    __device__ __forceinline__ Memory(unsigned aligned, int rank)
        : base(aligned),
          stage_bytes(split_stage_bytes(rank)),
          factors(aligned + kConfig.stages * split_stage_bytes(rank)),
          exponents(factors + split_factor_blocks(rank) * kSplitFactorBytes),
          streams(split_streams(rank)),
          peer(address_in_pair(aligned, pair_rank() ^ 1) - aligned) {
      rows_ = streams ? kConfig.stages : split_factor_blocks(rank);
    }

    __device__ __forceinline__ unsigned stage(int i) const { return base + i * stage_bytes; }
    // Where block `block` of B lies while the tile of A is in stage `i`.
    __device__ __forceinline__ unsigned factor(int block, int i) const {
      return streams ? stage(i) + kSplitTileBytes : factors + block * kSplitFactorBytes;
    }
    __device__ __forceinline__ unsigned row_exponents(int block, int i) const {
      return exponents + (streams ? i : block) * kRows * 4;
    }
    __device__ __forceinline__ unsigned tile_exponent(int i) const {
      return exponents + rows_ * kRows * 4 + i * 16;
    }
    // Of what warp `warp` of a group says to the others: the greatest magnitude of its rows and the
    // least of the greatest of each.
    __device__ __forceinline__ unsigned exchange(int group, int turn, int warp) const {
      return tile_exponent(kConfig.stages) + ((group * 2 + turn) * 4 + warp) * 8;
    }
    __device__ __forceinline__ unsigned barriers() const {
      return (tile_exponent(kConfig.stages) + 32 * 4 + 7) & ~7U;
    }
    __device__ __forceinline__ Barrier full(int i) const { return {barriers() + 8 * i}; }
    __device__ __forceinline__ Barrier empty(int i) const {
      return {barriers() + 8 * (kConfig.stages + i)};
    }

   private:
    int rows_;
  };

  static __device__ __forceinline__ void store_word(unsigned to, unsigned word) {
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(word) : "memory");
  }
  static __device__ __forceinline__ void store_words(unsigned to, unsigned first, unsigned second) {
    asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(to), "r"(first), "r"(second));
  }
  static __device__ __forceinline__ int load_word(unsigned from) {
    int word;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(word) : "r"(from) : "memory");
    return word;
  }
  static __device__ __forceinline__ void store_half(unsigned to, unsigned bits) {
    asm volatile("st.shared.b16 [%0], %1;" ::"r"(to), "h"(static_cast<unsigned short>(bits))
                 : "memory");
  }

  static __device__ __forceinline__ float factor_at(const KernelArguments& arguments,
                                                    const Task& task, int row, int k) {
    const OperandArgument& operand = arguments.operands[Op::kLoraB];
    if (task.first_row + row >= arguments.sizes[kNormRows] || k >= task.rank) return 0;
    return LoraB::widen(static_cast<const typename LoraB::Bits*>(
        operand.data)[(task.first_row + row) * operand.row_stride + k]);
  }

  // Splits rows of B, `count` of them: row i % 64 of block first_block + i / 64, by `warps` warps.
  // In stage `stage` where B is streamed.
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
  using Tile = Quad[kWarpRows];  // of a warp: rows 4 i + warp, columns 4 lane to 4 lane + 3

  // Where this lane's part of a tile begins.
  static __device__ __forceinline__ const typename LoraA::Bits* tile_address(
      const OperandArgument& operand, int tile, int block) {
    return static_cast<const typename LoraA::Bits*>(operand.data) +
           (block * kDepth + threadIdx.x / 32 % 4) * operand.row_stride +
           static_cast<long long>(tile) * kColumns + threadIdx.x % 32 * 4;
  }

  // Rows of the first kSteps sixteens. Elements beyond A are zeros.
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

  // The exponent of a tile, by the four warps that hold it.
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
      // A row of zeros wraps around to the greatest number.
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
    return greatest > 0 && exponent - split_exponent(least + 1) > kMostSpread ? kUnsplit : exponent;
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

  // Writes a tile to a stage once that is empty; returns its exponent.
  template <int kSteps>
  static __device__ __forceinline__ int split_rows(const Memory& memory, int group, int turn,
                                                   int stage, unsigned parity, const Tile& values) {
    const int exponent = find_exponent<kSteps>(memory, group, turn, values);
    memory.empty(stage).wait(parity);
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

  // Copies a tile and its exponent to the other program.
  static __device__ __forceinline__ void send_tile(const Memory& memory, int stage, int steps) {
    const Barrier full{memory.full(stage).address + memory.peer};
    const unsigned bytes = steps * 16 * kRowBytes;
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // blocks of 64 columns, high and low
      const unsigned from = memory.stage(stage) + i * kDepth * kRowBytes;
      copy_in_pair(from + memory.peer, from, bytes, full);
    }
    copy_in_pair(memory.tile_exponent(stage) + memory.peer, memory.tile_exponent(stage), 16, full);
  }

  // Before the phase of a stage's barrier ends, what the other program sends must have come.
  static __device__ __forceinline__ void expect_tile(const Memory& memory, int slab, int steps) {
    const int stage = slab % kConfig.stages;
    memory.empty(stage).wait(slab / kConfig.stages % 2 ^ 1);
    memory.full(stage).arrive_and_expect(4 * steps * 16 * kRowBytes + 16);
  }

  // The tiles of the sequence that are this group's: the programs of a pair take turns, and so do
  // the groups of a program. B, where it is streamed, is each program's own.
  static __device__ __forceinline__ void split_tiles(const KernelArguments& arguments,
                                                     const Task& task, const Memory& memory,
                                                     int group) {
    constexpr int kTurns = 2 * kSplitters;
    // A group that waits for a stage knows of the use before the last one that it is over: the
    // parity of a barrier does not tell them apart.
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
          memory.full(stage).arrive();
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

  // B for slab `first` and the next.
  static __device__ __forceinline__ void stream_factor(const KernelArguments& arguments,
                                                       const Task& task, const Memory& memory,
                                                       int first, int slabs) {
#pragma unroll 1
    for (int slab = first; slab < first + 2 && slab < slabs; ++slab) {
      const int stage = slab % kConfig.stages;
      memory.empty(stage).wait(slab / kConfig.stages % 2 ^ 1);
      split_factor<4>(arguments, task, memory, slab % task.blocks(), kRows, stage,
                      threadIdx.x / 32 % 4, 4);
      publish_shared_stores();
      __syncwarp();
      if (threadIdx.x % 32 == 0) memory.full(stage).arrive();
    }
  }

  using Products = float[kColumns / 2];

  static __device__ __forceinline__ void keep_in_registers(Products& products) {
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) asm volatile("" : "+f"(products[i])::"memory");
  }

  // The small terms come first, so that little is truncated of them.
  template <int kSteps>
  static __device__ __forceinline__ void multiply_steps(unsigned long long factor,
                                                        unsigned long long tile,
                                                        Products& products) {
    keep_in_registers(products);
    begin_products();
#pragma unroll
    for (int term = 0; term < 3; ++term) {
      const unsigned long long left = factor + (term == 0 ? kFactorHalf / 16 : 0);
      const unsigned long long right = tile + (term == 1 ? kTileHalf / 16 : 0);
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
        multiply_tiles<ElementType::kFloat16>(products, left + i * 2, right + i * kRowBytes,
                                              term + i > 0);
      }
    }
    commit_products();
    keep_in_registers(products);
  }

  static __device__ __forceinline__ void start_products(unsigned factor, unsigned tile, int steps,
                                                        Products& products) {
    const unsigned long long left = describe_tile(factor, 16);
    const unsigned long long right = describe_tile(tile, kDepth * kRowBytes);
    if (steps == 4) {
      multiply_steps<4>(left, right, products);
    } else if (steps == 1) {
      multiply_steps<1>(left, right, products);
    } else if (steps == 2) {
      multiply_steps<2>(left, right, products);
    } else {
      multiply_steps<3>(left, right, products);
    }
  }

  // sum + products * 2^exponents, of the two rows of the lane. A power of two beyond fp32 is
  // applied in two steps; where that makes a difference, the product is beyond fp32, too.
  static __device__ __forceinline__ void add_block(const int (&exponents)[2], Products& products,
                                                   Products& sum) {
    float scale[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      int rest = exponents[h];
      if (rest > 127 || rest < -126) {
        const int first = rest > 0 ? 100 : -100;
#pragma unroll
        for (int i = 0; i < kColumns / 2; ++i) {
          if (i / 2 % 2 == h) products[i] = products[i] * power_of_two(first);
        }
        rest -= first;
      }
      scale[h] = power_of_two(rest < -126 ? -126 : rest);
    }
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) {
      sum[i] = fused_multiply_add(products[i], scale[i / 2 % 2], sum[i]);
    }
  }

  // The block in fp32, from global memory.
  static __device__ __forceinline__ void add_unsplit_block(const KernelArguments& arguments,
                                                           const Task& task, int tile, int block,
                                                           Products& sum) {
    const OperandArgument& operand = arguments.operands[Op::kLoraA];
    const int row = threadIdx.x % kGroupThreads / 32 * 16 + threadIdx.x % 32 / 4;
    const long long column = static_cast<long long>(tile) * kColumns + threadIdx.x % 4 * 2;
    const long long left = arguments.sizes[kNormColumns] - column;
    const int last = task.rank < (block + 1) * kDepth ? task.rank : (block + 1) * kDepth;
    Products products = {};
#pragma unroll 1
    for (int k = block * kDepth; k < last; ++k) {
      const auto* const from =
          static_cast<const typename LoraA::Bits*>(operand.data) + k * operand.row_stride + column;
      const float factors[2] = {factor_at(arguments, task, row, k),
                                factor_at(arguments, task, row + 8, k)};
#pragma unroll
      for (int i = 0; i < kColumns / 8; ++i) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const float value = 8 * i + e < left ? LoraA::widen(from[8 * i + e]) : 0.0F;
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            const int at = 4 * i + 2 * h + e;
            products[at] = fused_multiply_add(factors[h], value, products[at]);
          }
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) sum[i] = sum[i] + products[i];
  }

  using Pair = PackedElements<typename Weight::Bits, 2>;
  using Weights = Pair[2][kColumns / 8];  // what this lane adds of a tile, as it lies in memory

  // Elements beyond W are zeros.
  static __device__ __forceinline__ void load_weights(const KernelArguments& arguments,
                                                      const Task& task, int tile,
                                                      Weights& weights) {
    const OperandArgument& operand = arguments.operands[Op::kWeight];
    const long long first_column = static_cast<long long>(tile) * kColumns;
    const long long column = first_column + threadIdx.x % 4 * 2;
    const bool is_whole = task.first_row + kRows <= arguments.sizes[kNormRows] &&
                          first_column + kColumns <= arguments.sizes[kNormColumns];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const long long row =
          task.first_row + threadIdx.x % kGroupThreads / 32 * 16 + threadIdx.x % 32 / 4 + h * 8;
      const auto* const from = static_cast<const typename Weight::Bits*>(operand.data) +
                               row * operand.row_stride + column;
      if (is_whole && kConfig.vector_width >= 2) {
#pragma unroll
        for (int i = 0; i < kColumns / 8; ++i) {
          weights[h][i] = *reinterpret_cast<const Pair*>(from + i * 8);
        }
      } else {
        const long long left =
            row < arguments.sizes[kNormRows] ? arguments.sizes[kNormColumns] - column : 0;
#pragma unroll
        for (int i = 0; i < kColumns / 8; ++i) {
          weights[h][i] = {};
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            if (i * 8 + e < left) weights[h][i].put(e, from[i * 8 + e]);
          }
        }
      }
    }
  }

  // Asks for a tile of W, a line of 128 bytes at a time.
  static __device__ __forceinline__ void prefetch_weights(const KernelArguments& arguments,
                                                          const Task& task, int tile) {
    constexpr int kSize = size_in_bytes(kWeightType);
    constexpr int kLines = kColumns * kSize / 128;  // of a row
    const OperandArgument& operand = arguments.operands[Op::kWeight];
#pragma unroll
    for (int i = threadIdx.x % kGroupThreads; i < kRows * kLines; i += kGroupThreads) {
      const long long row = task.first_row + i / kLines;
      const long long column = static_cast<long long>(tile) * kColumns + i % kLines * 128 / kSize;
      if (tile < task.last_tile && row < arguments.sizes[kNormRows] &&
          column < arguments.sizes[kNormColumns]) {
        asm volatile("prefetch.global.L2 [%0];" ::"l"(
            static_cast<const typename Weight::Bits*>(operand.data) + row * operand.row_stride +
            column));
      }
    }
  }

  // A tile of B A.
  static __device__ __forceinline__ void multiply_tile(const KernelArguments& arguments,
                                                       const Task& task, const Memory& memory,
                                                       int tile, RingPosition<kConfig.stages>& at,
                                                       Products& sum) {
    const int row = threadIdx.x % kGroupThreads / 32 * 16 + threadIdx.x % 32 / 4;
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) sum[i] = 0;
#pragma unroll 1
    for (int block = 0; block < task.blocks(); ++block) {
      const unsigned of_rows = memory.row_exponents(block, at.index) + row * 4;
      const int steps = task.steps(block);
      memory.full(at.index).wait(at.parity);
      // What lies there of a tile that was not split is multiplied for nothing.
      Products products;
      start_products(memory.factor(block, at.index), memory.stage(at.index), steps, products);
      const int exponent = load_word(memory.tile_exponent(at.index));
      const int exponents[2] = {exponent - 2 * kSplitTop + load_word(of_rows),
                                exponent - 2 * kSplitTop + load_word(of_rows + 32)};
      wait_for_products<0>();
      keep_in_registers(products);
      __syncwarp();
      if (threadIdx.x % 32 == 0) {
        memory.empty(at.index).arrive();
        memory.empty(at.index).arrive_in_pair(memory.peer);
      }
      if (exponent != kUnsplit) {
        add_block(exponents, products, sum);
      } else {
        add_unsplit_block(arguments, task, tile, block, sum);
      }
      at.advance();
    }
  }

  static __device__ __forceinline__ void sum_rows(const KernelArguments& arguments,
                                                  const NormParts& parts, const Task& task,
                                                  const Memory& memory) {
    const float scale = static_cast<float>(arguments.scalars[0]);
    RingPosition<kConfig.stages> at;
    NormSums sums;
    Products products = {};
    for (int i = 1; i < kTilesAhead; ++i) prefetch_weights(arguments, task, task.first_tile + i);
#pragma unroll 1
    for (int tile = task.first_tile; tile < task.last_tile; ++tile) {
      Weights weights;
      if constexpr (kLoadsEarly) load_weights(arguments, task, tile, weights);
      prefetch_weights(arguments, task, tile + kTilesAhead);
      if (task.rank > 0) multiply_tile(arguments, task, memory, tile, at, products);
      if constexpr (!kLoadsEarly) load_weights(arguments, task, tile, weights);
#pragma unroll
      for (int i = 0; i < kColumns / 8; ++i) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const float found[2] = {products[4 * i + 2 * h], products[4 * i + 2 * h + 1]};
          const float wide[2] = {Weight::widen(weights[h][i].get(0)),
                                 Weight::widen(weights[h][i].get(1))};
          sums.add(h, scale, found, wide);
        }
      }
      if ((tile + 1) * kColumns % kNormSpan == 0 || tile + 1 == task.last_tile) sums.end_span();
    }
    const long long row =
        task.first_row + threadIdx.x % kGroupThreads / 32 * 16 + NormSums::kept_place();
    if (NormSums::stores() && row < arguments.sizes[kNormRows]) {
      Op::finish_part(arguments, parts, blockIdx.y, row, sums.root());
    }
  }

  static __device__ __forceinline__ void run(const KernelArguments& arguments, const TensorMap&,
                                             const TensorMap&, const TensorMap&) {
    extern __shared__ unsigned char shared[];
    const long long columns = arguments.sizes[kNormColumns];
    const NormParts parts = norm_parts(columns, kConfig.most_parts);
    const int tiles = static_cast<int>((columns + kColumns - 1) / kColumns);
    const int tiles_of_part = static_cast<int>(parts.columns() / kColumns);
    const int first_tile = static_cast<int>(blockIdx.y) * tiles_of_part;
    const int last_tile = first_tile + tiles_of_part;
    const Task task{static_cast<long long>(blockIdx.x) * kRows, first_tile,
                    last_tile < tiles ? last_tile : tiles,
                    static_cast<float>(arguments.scalars[0]) == 0.0F
                        ? 0
                        : static_cast<int>(arguments.sizes[kNormRank])};
    const Memory memory((shared_address(shared) + 1023) & ~1023U, task.rank);
    let_second_stage_start();
    if (threadIdx.x == 0) {
      for (int i = 0; i < kConfig.stages; ++i) {
        memory.full(i).initialise(memory.streams ? 1 + 4 : 1);
        memory.empty(i).initialise(2 * 4);
      }
      publish_barriers();
    }
    if (!memory.streams) {
      split_factor<8>(arguments, task, memory, 0, task.blocks() * kRows, 0, threadIdx.x / 32,
                      kThreads / 32);
      publish_shared_stores();
    }
    wait_for_pair();
    if (threadIdx.x < kGroupThreads) {
      take_registers<232>();
      sum_rows(arguments, parts, task, memory);
    } else {
      leave_registers<136>();
      if (task.rank > 0) {
        split_tiles(arguments, task, memory, static_cast<int>(threadIdx.x) / kGroupThreads - 1);
      }
    }
    wait_for_pair();  // the other may still write here
  }
};

}  // namespace dorajit::kernels
