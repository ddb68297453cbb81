// weight_norm with mma.sync, for A and B of one 16-bit type or as pairs, of any alignment: sm_80
// and newer.
//
// A program computes `rows` rows, 32 per warp, and a part of the columns. Tiles of A and B pass
// through a ring of buffers in shared memory; W is loaded directly into the registers in which the
// warps square and sum.
#pragma once

#include "cuda/async_copy.cuh"
#include "cuda/main_loop.cuh"
#include "cuda/matrix_fragments.cuh"
#include "cuda/tile_copy.cuh"
#include "cuda/weight_norm/epilogue.cuh"
#include "cuda/weight_norm/rows.cuh"
#include "weight_norm_config.h"

namespace dorajit::kernels {

// Rows are padded by 16 bytes, so that the eight rows of a fragment lie in different banks.
template <WeightNormConfig kConfig>
struct MmaSharedMemory {
  static constexpr int kPitchA = kConfig.columns + kMmaPad;
  static constexpr int kPitchB = kConfig.rank_step + kMmaPad;
  static constexpr int kBytesA = kConfig.rank_step * kPitchA * 2;
  static constexpr int kBytesB = kConfig.rows * kPitchB * 2;
  static constexpr int kStageBytes = kBytesA + kBytesB;
  static_assert(kConfig.stages * kStageBytes == mma_shared_bytes(kConfig));
};

template <WeightNormConfig kConfig, ElementType... kTypes>
struct WeightNormMma {
  using Op = WeightNormOperands<kTypes...>;
  using Memory = MmaSharedMemory<kConfig>;
  using Bits = unsigned short;
  static constexpr ElementType kFactorType = Op::kFactorType;
  static constexpr ElementType kWeightType = Op::kType[kNormWeight];

  static constexpr int kWarpRows = 32;
  static constexpr int kThreads = kConfig.rows / kWarpRows * 32;
  static constexpr int kSlabs = kWarpRows / 16;
  static constexpr int kEights = kConfig.columns / 8;
  static constexpr int kBlockSteps = kNormRankBlock / kConfig.rank_step;
  // An f32 W leaves no registers for more steps.
  static constexpr int kUnrolledSteps = size_in_bytes(kWeightType) == 2 ? 4 : 1;

  struct Task {
    long long first_row;
    int first_tile;
    int last_tile;
    int rank;  // 0 if B A has no effect

    __device__ __forceinline__ int steps() const {
      return (rank + kConfig.rank_step - 1) / kConfig.rank_step;
    }
  };

  // The next step to load into a buffer.
  struct Feed {
    int tile;
    int step = 0;
  };

  // Copies a tile of kTileRows by kTileColumns elements. Aligned data is copied asynchronously.
  // Unlike TileCopy, it recomputes addresses, because an f32 W leaves no registers to keep them.
  template <int kTileRows, int kTileColumns, int kPitch, bool kIsAligned>
  static __device__ __forceinline__ void copy_tile(const OperandArgument& operand, long long row,
                                                   long long column, long long rows,
                                                   long long columns, unsigned to) {
    constexpr int kChunks = kTileColumns / 8;
    const Bits* const data = static_cast<const Bits*>(operand.data);
#pragma unroll 1
    for (int i = threadIdx.x; i < kTileRows * kChunks; i += kThreads) {
      const int tile_row = i / kChunks;
      const int tile_column = i % kChunks * 8;
      const long long left = row + tile_row < rows ? columns - column - tile_column : 0;
      const unsigned into = to + (tile_row * kPitch + tile_column) * 2;
      const Bits* from = data + (row + tile_row) * operand.row_stride + column + tile_column;
      if constexpr (kIsAligned) {
        const int bytes = left >= 8 ? 16 : left > 0 ? static_cast<int>(left) * 2 : 0;
        if (bytes == 0) from = data;
        asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;" ::"r"(into), "l"(from),
                     "r"(bytes)
                     : "memory");
      } else {
        unsigned words[4] = {0, 0, 0, 0};
#pragma unroll
        for (int e = 0; e < 8; ++e) {
          if (e < left) words[e / 2] |= static_cast<unsigned>(from[e]) << (e % 2 * 16);
        }
        asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(into), "r"(words[0]),
                     "r"(words[1]), "r"(words[2]), "r"(words[3])
                     : "memory");
      }
    }
  }

  template <bool kIsAligned>
  static __device__ __forceinline__ void copy_factor(const KernelArguments& arguments,
                                                     const Task& task, long long k, unsigned to) {
    copy_tile<kConfig.rows, kConfig.rank_step, Memory::kPitchB, kIsAligned>(
        Op::lora_b(arguments), task.first_row, k, arguments.sizes[kNormRows], task.rank, to);
  }

  // Starts to fill a buffer.
  static __device__ __forceinline__ void start_stage(const KernelArguments& arguments,
                                                     const Task& task, unsigned shared, Feed& feed,
                                                     int buffer) {
    if (feed.tile < task.last_tile) {
      const int k = feed.step * kConfig.rank_step;
      const unsigned to = shared + buffer * Memory::kStageBytes;
      constexpr bool kIsAligned = Op::kHasPairs || kConfig.vector_width == 8;
      copy_tile<kConfig.rank_step, kConfig.columns, Memory::kPitchA, kIsAligned>(
          Op::lora_a(arguments), k, static_cast<long long>(feed.tile) * kConfig.columns, task.rank,
          arguments.sizes[kNormColumns], to);
      if (Op::kHasPairs || has_aligned_rows(Op::lora_b(arguments))) {
        copy_factor<true>(arguments, task, k, to + Memory::kBytesA);
      } else {
        copy_factor<false>(arguments, task, k, to + Memory::kBytesA);
      }
      if (++feed.step == task.steps()) {
        feed.step = 0;
        ++feed.tile;
      }
    }
    end_copies();
  }

  using Products = float[kSlabs][kEights][4];
  using NormSums = NormFragments<2 * kSlabs>;

  static __device__ __forceinline__ void multiply_stage(unsigned stage, Products& products) {
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const unsigned tile_a = stage + (lane % 16 * Memory::kPitchA + lane / 16 * 8) * 2;
    const unsigned tile_b = stage + Memory::kBytesA +
                            ((warp * kWarpRows + lane % 16) * Memory::kPitchB + lane / 16 * 8) * 2;
#pragma unroll kUnrolledSteps
    for (int k = 0; k < kConfig.rank_step; k += 16) {
      multiply_slabs<kFactorType>(
          products,
          [&](int slab, unsigned(&left)[4]) {
            load_fragments(tile_b + (slab * 16 * Memory::kPitchB + k) * 2, left);
          },
          [&](int eight, unsigned(&right)[4]) {
            load_fragments_transposed(tile_a + (k * Memory::kPitchA + eight * 8) * 2, right);
          });
    }
  }

  // Adds the sums of a block of the rank, and clears the block's accumulators.
  static __device__ __forceinline__ void add_block(Products& products, Products& block) {
#pragma unroll
    for (int slab = 0; slab < kSlabs; ++slab) {
#pragma unroll
      for (int eight = 0; eight < kEights; ++eight) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          products[slab][eight][i] = products[slab][eight][i] + block[slab][eight][i];
          block[slab][eight][i] = 0;
        }
      }
    }
  }

  using Weights = WeightFragments<kWeightType, kSlabs, kConfig.columns>;

  using Scales = float[2 * kSlabs];  // of the lane's rows

  static __device__ __forceinline__ void add_tile(const Scales& scales, const Products& products,
                                                  const Weights& weights, NormSums& sums) {
#pragma unroll
    for (int slab = 0; slab < kSlabs; ++slab) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
#pragma unroll
        for (int eight = 0; eight < kEights; ++eight) {
          const float found[2] = {products[slab][eight][2 * h], products[slab][eight][2 * h + 1]};
          const float wide[2] = {weights.get(slab, h, eight, 0), weights.get(slab, h, eight, 1)};
          sums.add(2 * slab + h, scales[2 * slab + h], found, wide);
        }
      }
    }
  }

  static __device__ __forceinline__ void run(const KernelArguments& arguments, const TensorMap&,
                                             const TensorMap&, const TensorMap&) {
    extern __shared__ unsigned char memory[];
    const unsigned shared = shared_address(memory);
    const long long columns = arguments.sizes[kNormColumns];
    const NormParts parts = norm_parts(columns, kConfig.max_parts);
    const int tiles = static_cast<int>((columns + kConfig.columns - 1) / kConfig.columns);
    const int tiles_of_part = static_cast<int>(parts.columns() / kConfig.columns);
    const int first_tile = static_cast<int>(blockIdx.y) * tiles_of_part;
    const int last_tile = first_tile + tiles_of_part;
    const Task task{static_cast<long long>(blockIdx.x) * kConfig.rows, first_tile,
                    last_tile < tiles ? last_tile : tiles, Op::factor_rank(arguments)};
    const int steps = task.steps();
    const long long first_row =
        task.first_row + threadIdx.x / 32 * kWarpRows + threadIdx.x % 32 / 4;  // of the lane
    let_second_stage_start();
    Op::wait_for_pairs();
    Scales scales;
#pragma unroll
    for (int row = 0; row < 2 * kSlabs; ++row) {
      scales[row] = Op::scale_of_row(arguments, static_cast<float>(arguments.scalars[0]),
                                     first_row + row * 8);
    }
    NormSums sums;
    Feed feed{task.first_tile};
    int buffer = 0;
    if (steps > 0) {
      for (int i = 0; i < kConfig.stages - 1; ++i) start_stage(arguments, task, shared, feed, i);
    }
    for (int tile = task.first_tile; tile < task.last_tile; ++tile) {
      const long long first_column = static_cast<long long>(tile) * kConfig.columns;
      const bool is_whole = task.first_row + kConfig.rows <= arguments.sizes[kNormRows] &&
                            first_column + kConfig.columns <= columns;
      Weights weights;  // loaded early, so that the products hide the latency
      weights.load(arguments, arguments.operands[kNormWeight], first_row,
                   first_column + threadIdx.x % 4 * 2, is_whole && kConfig.vector_width >= 2);
      Products products = {};
      Products block = {};
      multiply_stages<kConfig.stages>(
          steps, buffer, [&](int, int stage) { start_stage(arguments, task, shared, feed, stage); },
          [&](int step, int stage) {
            multiply_stage(shared + stage * Memory::kStageBytes, block);
            if ((step + 1) % kBlockSteps == 0 || step + 1 == steps) add_block(products, block);
          });
      add_tile(scales, products, weights, sums);
      if ((tile + 1) * kConfig.columns % kNormSpan == 0 || tile + 1 == task.last_tile) {
        sums.end_span();
      }
    }
    const long long row = task.first_row + threadIdx.x / 32 * kWarpRows + NormSums::kept_place();
    if (NormSums::stores() && row < arguments.sizes[kNormRows]) {
      Op::finish_part(arguments, parts, blockIdx.y, row, sums.root());
    }
  }
};

}  // namespace dorajit::kernels
