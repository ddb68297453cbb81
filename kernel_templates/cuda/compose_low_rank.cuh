// compose_low_rank by mma.sync, for factors of one 16-bit type and any alignment: sm_80 and newer.
//
// A program has a tile of the output. Tiles of both factors go through a ring of buffers in shared
// memory; the tile of the result is on its way meanwhile. The products stay in the registers in
// which they were summed, and are composed with the result there.
//
// The tensor cores leave a lane two neighbouring columns of every eight, the vectors of result and
// outputs want eight neighbours. So rows of B lie in shared memory in an order which makes
// neighbours of the columns that a lane is left with.
#pragma once

#include "compose_low_rank_config.h"
#include "cuda/async_copy.cuh"
#include "cuda/matrix_fragments.cuh"
#include "cuda/tile_copy.cuh"
#include "cuda/vector_access.cuh"
#include "math/compose_residual.h"

namespace dorajit::kernels {

// Of 32 columns, those that lane q of four is left with are 8 q + {0 .. 7}, two of each eight.
struct NeighboursOfLane {
  static __device__ __forceinline__ int place(int column) {
    return column / 32 * 32 + column % 8 / 2 * 8 + column % 32 / 8 * 2 + column % 2;
  }
};

template <LowRankConfig kConfig, ElementType... kTypes>
struct ComposeLowRank {
  static constexpr ElementType kType[] = {kTypes...};
  static_assert(sizeof...(kTypes) == kLowRankOperands, "one element type per operand");
  static constexpr ElementType kFactorType = kType[kLowRankLow];
  static constexpr ElementType kResultType = kType[kLowRankResult];
  static constexpr ElementType kOutType = kType[kLowRankOut];
  static constexpr ElementType kInnerType = kType[kLowRankInner];
  static constexpr bool kHasInner = kInnerType != ElementType::kAbsent;
  static_assert(kFactorType == kType[kLowRankLoraB] && size_in_bytes(kFactorType) == 2,
                "both factors have one 16-bit type");

  static constexpr int kThreads = kConfig.warps * 32;
  static constexpr int kStages = kConfig.stages;
  static constexpr int kStep = kConfig.rank_step;
  static constexpr int kWarpsAcross = kConfig.columns / kLowRankWarpColumns;
  static constexpr int kWarpRows = low_rank_warp_rows(kConfig);
  static constexpr int kSlabs = kWarpRows / 16;
  static constexpr int kEights = kLowRankWarpColumns / 8;
  static constexpr int kGroups = kLowRankWarpColumns / 32;
  static_assert(kWarpRows % 16 == 0 && kWarpRows * kConfig.warps == kConfig.rows * kWarpsAcross,
                "warps share the rows of a program in slabs of 16");

  static constexpr int kPitch = kStep + kLowRankPad;
  static constexpr int kLowBytes = kConfig.rows * kPitch * 2;
  static constexpr int kStageBytes = kLowBytes + kConfig.columns * kPitch * 2;
  static_assert(kStages * kStageBytes == low_rank_shared_bytes(kConfig));
  using LowCopy = TileCopy<kThreads, kConfig.rows, kStep, kPitch>;
  using FactorCopy = TileCopy<kThreads, kConfig.columns, kStep, kPitch, NeighboursOfLane>;

  // Eight neighbouring elements of an operand, as they lie in memory.
  static constexpr int kRun = 8;
  static constexpr int kWidth = kConfig.vector_width;
  static constexpr int kVectors = kRun / kWidth;
  template <ElementType kElements>
  struct Run {
    Words<words_for(kWidth* size_in_bytes(kElements))> words[kVectors];

    __device__ __forceinline__ void load(const OperandArgument& operand, long long offset,
                                         long long remaining) {
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        load_vector<kElements, kWidth, false>(operand.data, offset + i * kWidth,
                                              remaining - i * kWidth, words[i]);
      }
    }
    __device__ __forceinline__ void store(const OperandArgument& operand, long long offset,
                                          long long remaining) const {
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        store_vector<kElements, kWidth, false>(operand.data, offset + i * kWidth,
                                               remaining - i * kWidth, words[i]);
      }
    }
    __device__ __forceinline__ float get(int i) const {
      return Element<kElements>::widen(get_bits<kElements>(words[i / kWidth], i % kWidth));
    }
    __device__ __forceinline__ void put(int i, float value) {
      set_bits<kElements>(words[i / kWidth], i % kWidth, Element<kElements>::narrow(value));
    }
  };

  struct Tile {
    long long row;
    long long column;
    bool is_whole;
  };

  // Where this lane's part of a tile begins.
  static __device__ __forceinline__ int lane_row() {
    return static_cast<int>(threadIdx.x) / 32 / kWarpsAcross * kWarpRows +
           static_cast<int>(threadIdx.x) % 32 / 4;
  }
  static __device__ __forceinline__ int lane_column() {
    return static_cast<int>(threadIdx.x) / 32 % kWarpsAcross * kLowRankWarpColumns +
           static_cast<int>(threadIdx.x) % 4 * kRun;
  }

  using ResultRun = Run<kResultType>;
  static constexpr bool kKeepsResult = kConfig.prefetch == ResultPrefetch::kInRegisters;
  using Results = ResultRun[kSlabs][2][kGroups];

  static __device__ __forceinline__ void load_results(const KernelArguments& arguments,
                                                      const Tile& tile, Results& results) {
    const OperandArgument& operand = arguments.operands[kLowRankResult];
    const long long row = tile.row + lane_row();
    const long long column = tile.column + lane_column();
#pragma unroll
    for (int slab = 0; slab < kSlabs; ++slab) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const long long at = row + slab * 16 + h * 8;
#pragma unroll
        for (int group = 0; group < kGroups; ++group) {
          const long long first = column + group * 32;
          const long long offset = at * operand.row_stride + first;
          if (tile.is_whole) {
            results[slab][h][group].load(operand, offset, kRun);
          } else {
            results[slab][h][group].load(
                operand, offset,
                at < arguments.sizes[kLowRankRows] ? arguments.sizes[kLowRankColumns] - first : 0);
          }
        }
      }
    }
  }

  // Brings the tile of the result to the L2 cache.
  static __device__ __forceinline__ void prefetch_results(const KernelArguments& arguments,
                                                          const Tile& tile) {
    constexpr int kSize = size_in_bytes(kResultType);
    constexpr int kLine = 128 / kSize;
    constexpr int kLines = kConfig.columns / kLine;
    const OperandArgument& operand = arguments.operands[kLowRankResult];
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < kConfig.rows * kLines; i += kThreads) {
      const long long row = tile.row + i / kLines;
      const long long column = tile.column + i % kLines * kLine;
      if (row < arguments.sizes[kLowRankRows] && column < arguments.sizes[kLowRankColumns]) {
        asm volatile("prefetch.global.L2 [%0];" ::"l"(static_cast<const char*>(operand.data) +
                                                      (row * operand.row_stride + column) * kSize));
      }
    }
  }

  // Starts to fill a buffer with step `step` of the rank.
  static __device__ __forceinline__ void start_stage(const KernelArguments& arguments,
                                                     const Tile& tile, int step, int steps,
                                                     unsigned to) {
    if (step < steps) {
      const long long rank = arguments.sizes[kLowRankRank];
      LowCopy::start(arguments.operands[kLowRankLow], tile.row, step * kStep,
                     arguments.sizes[kLowRankRows], rank, to);
      FactorCopy::start(arguments.operands[kLowRankLoraB], tile.column, step * kStep,
                        arguments.sizes[kLowRankColumns], rank, to + kLowBytes);
    }
    end_copies();
  }

  using Products = float[kSlabs][kEights][4];

  // Adds the first `depth` of the rank that the buffer holds, rounded up to 16.
  static __device__ __forceinline__ void multiply_stage(unsigned stage, int depth,
                                                        Products& products) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const unsigned low =
        stage + ((warp / kWarpsAcross * kWarpRows + lane % 16) * kPitch + lane / 16 * 8) * 2;
    const unsigned factor =
        stage + kLowBytes +
        ((warp % kWarpsAcross * kLowRankWarpColumns + lane / 16 * 8 + lane % 8) * kPitch +
         lane / 8 % 2 * 8) *
            2;
#pragma unroll
    for (int k = 0; k < kStep; k += 16) {
      if (k >= depth) break;
      unsigned left[kSlabs][4];
#pragma unroll
      for (int slab = 0; slab < kSlabs; ++slab) {
        load_fragments(low + (slab * 16 * kPitch + k) * 2, left[slab]);
      }
#pragma unroll
      for (int eight = 0; eight < kEights; eight += 2) {
        unsigned right[4];
        load_fragments(factor + (eight * 8 * kPitch + k) * 2, right);
#pragma unroll
        for (int slab = 0; slab < kSlabs; ++slab) {
          multiply_fragments<kFactorType>(products[slab][eight], left[slab], right[0], right[1]);
          multiply_fragments<kFactorType>(products[slab][eight + 1], left[slab], right[2],
                                          right[3]);
        }
      }
    }
  }

  static __device__ __forceinline__ void multiply(const KernelArguments& arguments,
                                                  const Tile& tile, int rank, unsigned shared,
                                                  Products& products) {
    const int steps = (rank + kStep - 1) / kStep;
    if constexpr (kStages == 1) {
      wait_for_copies<0>();
      __syncthreads();
      multiply_stage(shared, rank, products);
    } else {
      int buffer = 0;
#pragma unroll 1
      for (int step = 0; step < steps; ++step) {
        wait_for_copies<kStages - 2>();
        __syncthreads();
        start_stage(arguments, tile, step + kStages - 1, steps,
                    shared + (buffer > 0 ? buffer - 1 : kStages - 1) * kStageBytes);
        multiply_stage(shared + buffer * kStageBytes, rank - step * kStep, products);
        if (++buffer == kStages) buffer = 0;
      }
    }
  }

  // Of the eight columns of a group that are this lane's.
  template <LowRankOperand kOperand>
  static __device__ __forceinline__ void load_columns(const KernelArguments& arguments,
                                                      long long column, long long remaining,
                                                      float (&values)[kRun]) {
    constexpr ElementType kOwn = kType[kOperand];
    if constexpr (kOwn != ElementType::kAbsent) {
      Run<kOwn> run;
      run.load(arguments.operands[kOperand], column, remaining);
#pragma unroll
      for (int i = 0; i < kRun; ++i) values[i] = run.get(i);
    } else {
#pragma unroll
      for (int i = 0; i < kRun; ++i) values[i] = 0;
    }
  }

  template <bool kIsWhole>
  static __device__ __forceinline__ void compose(const KernelArguments& arguments, const Tile& tile,
                                                 const Products& products, const Results& results) {
    const ComposeResidual<float> formula(arguments.scalars);
    const long long first_row = tile.row + lane_row();
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      const long long column = tile.column + lane_column() + group * 32;
      const long long remaining = kIsWhole ? kRun : arguments.sizes[kLowRankColumns] - column;
      float gain[kRun];
      float bias[kRun];
      load_columns<kLowRankGain>(arguments, column, remaining, gain);
      load_columns<kLowRankBias>(arguments, column, remaining, bias);
#pragma unroll
      for (int slab = 0; slab < kSlabs; ++slab) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const long long row = first_row + slab * 16 + h * 8;
          if (!kIsWhole && row >= arguments.sizes[kLowRankRows]) continue;
          ResultRun result;
          if constexpr (kKeepsResult) {
            result = results[slab][h][group];
          } else {
            const OperandArgument& operand = arguments.operands[kLowRankResult];
            result.load(operand, row * operand.row_stride + column, remaining);
          }
          Run<kOutType> out;
          Run<kHasInner ? kInnerType : kOutType> inner;
#pragma unroll
          for (int i = 0; i < kRun; ++i) {
            const float matrix[] = {products[slab][group * 4 + i / 2][2 * h + i % 2],
                                    result.get(i)};
            const float broadcast[] = {gain[i], bias[i]};
            float made[2];
            formula(matrix, broadcast, made);
            out.put(i, made[0]);
            inner.put(i, made[1]);
          }
          const OperandArgument& to = arguments.operands[kLowRankOut];
          out.store(to, row * to.row_stride + column, remaining);
          if constexpr (kHasInner) {
            const OperandArgument& other = arguments.operands[kLowRankInner];
            inner.store(other, row * other.row_stride + column, remaining);
          }
        }
      }
    }
  }

  static __device__ __forceinline__ void run_tile(const KernelArguments& arguments,
                                                  const Tile& tile, unsigned shared) {
    const int rank = static_cast<float>(arguments.scalars[0]) == 0.0F
                         ? 0
                         : static_cast<int>(arguments.sizes[kLowRankRank]);
    const int steps = (rank + kStep - 1) / kStep;
    constexpr int kAhead = kStages == 1 ? 1 : kStages - 1;
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      start_stage(arguments, tile, i, steps, shared + i * kStageBytes);
    }
    Results results;
    if constexpr (kKeepsResult) {
      load_results(arguments, tile, results);
    } else {
      prefetch_results(arguments, tile);
    }
    Products products = {};
    multiply(arguments, tile, rank, shared, products);
    if (tile.is_whole) {
      compose<true>(arguments, tile, products, results);
    } else {
      compose<false>(arguments, tile, products, results);
    }
  }

  static __device__ __forceinline__ void run(const KernelArguments& arguments) {
    extern __shared__ unsigned char memory[];
    const long long rows = arguments.sizes[kLowRankRows];
    const long long columns = arguments.sizes[kLowRankColumns];
#pragma unroll 1
    for (long long row = static_cast<long long>(blockIdx.y) * kConfig.rows; row < rows;
         row += static_cast<long long>(gridDim.y) * kConfig.rows) {
#pragma unroll 1
      for (long long column = static_cast<long long>(blockIdx.x) * kConfig.columns;
           column < columns; column += static_cast<long long>(gridDim.x) * kConfig.columns) {
        run_tile(arguments,
                 {row, column, row + kConfig.rows <= rows && column + kConfig.columns <= columns},
                 shared_address(memory));
        __syncthreads();  // before the buffers are filled anew
      }
    }
  }
};

}  // namespace dorajit::kernels

// What is generated per kernel. `config` stands in parentheses.
#define DORAJIT_COMPOSE_LOW_RANK_KERNEL(config, ...)                                        \
  extern "C" __global__ void __launch_bounds__(                                             \
      dorajit::kernels::ComposeLowRank<config, __VA_ARGS__>::kThreads, 1)                   \
      dorajit_kernel(const __grid_constant__ dorajit::kernels::KernelArguments arguments) { \
    dorajit::kernels::ComposeLowRank<config, __VA_ARGS__>::run(arguments);                  \
  }
