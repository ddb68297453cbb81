// compose_low_rank with mma.sync, for factors of one 16-bit type, any alignment: sm_80 and newer.
//
// A program computes a tile of the output. Tiles of both factors pass through a ring of buffers in
// shared memory; the tile of the result is loaded meanwhile. The products stay in their accumulator
// registers, where they are composed with the result.
//
// The tensor cores leave each lane two neighbouring columns of every eight, but vector accesses to
// result and outputs need eight neighbours. Rows of B are therefore permuted in shared memory, so
// that each lane's columns are neighbours.
#pragma once

#include "compose_low_rank_config.h"
#include "cuda/async_copy.cuh"
#include "cuda/element_runs.cuh"
#include "cuda/main_loop.cuh"
#include "cuda/matrix_fragments.cuh"
#include "cuda/tile_copy.cuh"
#include "math/compose_residual.h"

namespace dorajit::kernels {

// Of 32 columns, lane q of four receives columns 8 q + {0 .. 7}, two from every eight.
struct NeighboursOfLane {
  static __device__ __forceinline__ constexpr int place(int column) {
    return column / 32 * 32 + column % 8 / 2 * 8 + column % 32 / 8 * 2 + column % 2;
  }
};

template <LowRankConfig kConfig, ElementType... kTypes>
struct ComposeLowRankMma {
  struct Maps {};  // this kernel uses no tensor maps

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
  static constexpr int kTiles = kConfig.tiles;
  static constexpr int kStep = kConfig.rank_step;
  static constexpr int kWarpsAcross = kConfig.columns / kLowRankWarpColumns;
  static constexpr int kWarpRows = low_rank_warp_rows(kConfig);
  static constexpr int kSlabs = kWarpRows / 16;
  static constexpr int kEights = kLowRankWarpColumns / 8;
  static constexpr int kGroups = kLowRankWarpColumns / 32;
  static_assert(kConfig.warps % kWarpsAcross == 0 && kWarpRows % 16 == 0 &&
                    kWarpRows * kConfig.warps == kConfig.rows * kWarpsAcross,
                "warps share the strips of a program evenly, and its rows in slabs of 16");

  // The same code needs more registers when it is compiled for GPUs before sm_90.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
  static constexpr bool kIsOlder = true;
#else
  static constexpr bool kIsOlder = false;
#endif
  static constexpr bool kIsNarrow = kConfig.vector_width == 8 && size_in_bytes(kResultType) == 2 &&
                                    size_in_bytes(kOutType) == 2 && size_in_bytes(kInnerType) <= 2;
  static constexpr int kPrograms =
      kIsNarrow ? low_rank_programs(kConfig, kHasInner || kIsOlder) : 1;

  static constexpr int kPitch = kStep + kLowRankPad;
  static constexpr int kLowBytes = kConfig.rows * kPitch * 2;
  static constexpr int kStageBytes = kLowBytes + kConfig.columns * kPitch * 2;
  static_assert(kStages * kStageBytes == low_rank_shared_bytes(kConfig));
  using LowCopy = TileCopy<kThreads, kConfig.rows, kStep, kPitch>;
  using FactorCopy = TileCopy<kThreads, kConfig.columns, kStep, kPitch, NeighboursOfLane>;

  static constexpr int kRun = kElementsOfRun;
  template <ElementType kElements>
  using Run = ElementRun<kElements, kConfig.vector_width>;

  struct Tile {
    long long row;
    long long column;
  };

  // The first row and column of this lane's part of a tile.
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
  // Groups whose result is loaded at once: loads cannot be moved ahead of stores, which may alias.
  static constexpr int kBatch = kKeepsResult ? kGroups : 1;
  using Results = ResultRun[kBatch][2 * kSlabs];

  template <bool kIsWhole>
  static __device__ __forceinline__ void load_results(const KernelArguments& arguments,
                                                      const Tile& tile, int first_group,
                                                      Results& results) {
    const OperandArgument& operand = arguments.operands[kLowRankResult];
    const long long first_row = tile.row + lane_row();
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const long long column = tile.column + lane_column() + (first_group + i) * 32;
      RowPointer<kResultType> from(operand, first_row, column);
#pragma unroll
      for (int eight = 0; eight < 2 * kSlabs; ++eight, from.advance()) {
        const bool is_there = kIsWhole || first_row + eight * 8 < arguments.sizes[kLowRankRows];
        const long long remaining = kIsWhole ? kRun : arguments.sizes[kLowRankColumns] - column;
        results[i][eight].template load<true>(from.at, is_there ? remaining : 0);
      }
    }
  }

  // Prefetches the tile of the result into the L2 cache.
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

  // The copies of both factors into the ring.
  struct Copies {
    LowCopy low;
    FactorCopy factor;
    int steps;

    __device__ __forceinline__ Copies(const KernelArguments& arguments, const Tile& tile, int rank)
        : low(arguments.operands[kLowRankLow], tile.row, arguments.sizes[kLowRankRows], rank),
          factor(arguments.operands[kLowRankLoraB], tile.column, arguments.sizes[kLowRankColumns],
                 rank),
          steps((rank + kStep - 1) / kStep) {}

    // Starts to fill a buffer with step `step` of the rank. With `keeps_factor`, the buffer already
    // holds the tile of lora_B.
    __device__ __forceinline__ void start_stage(int step, unsigned to,
                                                bool keeps_factor = false) const {
      if (step < steps) {
        low.start(step * kStep, to);
        if (!keeps_factor) factor.start(step * kStep, to + kLowBytes);
      }
      end_copies();
    }

    // Starts the copies of the first steps of a tile.
    __device__ __forceinline__ void begin(unsigned shared, bool keeps_factor = false) const {
      if constexpr (kStages == 1) {
        start_stage(0, shared, keeps_factor);
      } else {
#pragma unroll 1
        for (int i = 0; i < kStages - 1; ++i) start_stage(i, shared + i * kStageBytes);
      }
    }
  };

  using Products = float[kSlabs][kEights][4];

  // Adds the products over the first `depth` of the buffer's rank elements, rounded up to 16.
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
      multiply_slabs<kFactorType>(
          products,
          [&](int slab, unsigned(&left)[4]) {
            load_fragments(low + (slab * 16 * kPitch + k) * 2, left);
          },
          [&](int eight, unsigned(&right)[4]) {
            load_fragments(factor + (eight * 8 * kPitch + k) * 2, right);
          });
    }
  }

  static __device__ __forceinline__ void multiply(const Copies& copies, int rank, unsigned shared,
                                                  Products& products) {
    if constexpr (kStages == 1) {
      wait_for_copies<0>();
      __syncthreads();
      multiply_stage(shared, rank, products);
    } else {
      int first = 0;
      multiply_stages<kStages>(
          copies.steps, first,
          [&](int step, int stage) {
            copies.start_stage(step + kStages - 1, shared + stage * kStageBytes);
          },
          [&](int step, int stage) {
            multiply_stage(shared + stage * kStageBytes, rank - step * kStep, products);
          });
    }
  }

  // Loads an operand's elements of this lane's eight columns of a group; zeros if it is absent.
  template <LowRankOperand kOperand>
  static __device__ __forceinline__ void load_columns(const KernelArguments& arguments,
                                                      long long column, long long remaining,
                                                      float (&values)[kRun]) {
    constexpr ElementType kOwn = kType[kOperand];
    if constexpr (kOwn != ElementType::kAbsent) {
      Run<kOwn> run;
      run.load(static_cast<const char*>(arguments.operands[kOperand].data) +
                   column * size_in_bytes(kOwn),
               remaining);
#pragma unroll
      for (int i = 0; i < kRun; ++i) values[i] = run.get(i);
    } else {
#pragma unroll
      for (int i = 0; i < kRun; ++i) values[i] = 0;
    }
  }

  template <bool kIsWhole>
  static __device__ __forceinline__ void compose(const KernelArguments& arguments, const Tile& tile,
                                                 const Products& products, Results& results) {
    const ComposeResidual<float> formula(arguments.scalars);
    const long long first_row = tile.row + lane_row();
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      if (!kKeepsResult && group % kBatch == 0) {
        load_results<kIsWhole>(arguments, tile, group, results);
      }
      const long long column = tile.column + lane_column() + group * 32;
      const long long remaining = kIsWhole ? kRun : arguments.sizes[kLowRankColumns] - column;
      float gain[kRun];
      float bias[kRun];
      load_columns<kLowRankGain>(arguments, column, remaining, gain);
      load_columns<kLowRankBias>(arguments, column, remaining, bias);
      RowPointer<kOutType> out_row(arguments.operands[kLowRankOut], first_row, column);
      RowPointer<kHasInner ? kInnerType : kOutType> inner_row(
          arguments.operands[kHasInner ? kLowRankInner : kLowRankOut], first_row, column);
#pragma unroll
      for (int eight = 0; eight < 2 * kSlabs; ++eight) {
        const int slab = eight / 2;
        const int h = eight % 2;
        if (kIsWhole || first_row + eight * 8 < arguments.sizes[kLowRankRows]) {
          Run<kOutType> out;
          Run<kHasInner ? kInnerType : kOutType> inner;
#pragma unroll
          for (int i = 0; i < kRun; ++i) {
            const float matrix[] = {products[slab][group * 4 + i / 2][2 * h + i % 2],
                                    results[group % kBatch][eight].get(i)};
            const float broadcast[] = {gain[i], bias[i]};
            float made[2];
            formula(matrix, broadcast, made);
            out.put(i, made[0]);
            inner.put(i, made[1]);
          }
          out.store(out_row.at, remaining);
          if constexpr (kHasInner) inner.store(inner_row.at, remaining);
        }
        out_row.advance();
        inner_row.advance();
      }
    }
  }

  template <bool kIsWhole>
  static __device__ __forceinline__ void begin_results(const KernelArguments& arguments,
                                                       const Tile& tile, Results& results) {
    if constexpr (kKeepsResult) {
      load_results<kIsWhole>(arguments, tile, 0, results);
    } else {
      prefetch_results(arguments, tile);
    }
  }

  static __device__ __forceinline__ int rank_of(const KernelArguments& arguments) {
    return static_cast<int>(low_rank_depth(arguments.scalars[0], arguments.sizes[kLowRankRank]));
  }

  // Processes the tiles one after the other.
  template <bool kIsWhole>
  static __device__ __forceinline__ void run_apart(const KernelArguments& arguments, Tile tile,
                                                   unsigned shared) {
    const int rank = rank_of(arguments);
#pragma unroll 1
    for (int done = 1;; ++done) {
      Results results;
      begin_results<kIsWhole>(arguments, tile, results);
      const Copies copies(arguments, tile, rank);
      copies.begin(shared);
      Products products = {};
      multiply(copies, rank, shared, products);
      compose<kIsWhole>(arguments, tile, products, results);
      tile.row += kConfig.rows;
      if (kTiles == 1 || done == kTiles || tile.row >= arguments.sizes[kLowRankRows]) return;
      __syncthreads();  // before the buffers are refilled
    }
  }

  // Processes whole tiles. Loads for the next tile are in flight while a tile is composed.
  static __device__ __forceinline__ void run_together(const KernelArguments& arguments, Tile tile,
                                                      unsigned shared) {
    const int rank = rank_of(arguments);
    Results results;
    begin_results<true>(arguments, tile, results);
    Copies copies(arguments, tile, rank);
    copies.begin(shared);
#pragma unroll 1
    for (int left = kTiles - 1;; --left) {
      Products products = {};
      multiply(copies, rank, shared, products);
      Results coming;
      if (left > 0) {
        __syncthreads();  // before the buffers are refilled
        copies.low.from += kConfig.rows * arguments.operands[kLowRankLow].row_stride;
        copies.begin(shared, true);
        begin_results<true>(arguments, {tile.row + kConfig.rows, tile.column}, coming);
      }
      compose<true>(arguments, tile, products, results);
      if (left == 0) return;
      if constexpr (kKeepsResult) {
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
#pragma unroll
          for (int eight = 0; eight < 2 * kSlabs; ++eight) results[i][eight] = coming[i][eight];
        }
      }
      tile.row += kConfig.rows;
    }
  }

  static __device__ __forceinline__ void run(const KernelArguments& arguments, const Maps&) {
    extern __shared__ unsigned char memory[];
    constexpr int kProgramRows = kConfig.rows * kTiles;
    const long long rows = arguments.sizes[kLowRankRows];
    const long long columns = arguments.sizes[kLowRankColumns];
#pragma unroll 1
    for (long long row = static_cast<long long>(blockIdx.y) * kProgramRows; row < rows;
         row += static_cast<long long>(gridDim.y) * kProgramRows) {
#pragma unroll 1
      for (long long column = static_cast<long long>(blockIdx.x) * kConfig.columns;
           column < columns; column += static_cast<long long>(gridDim.x) * kConfig.columns) {
        const Tile tile{row, column};
        const bool is_whole = row + kProgramRows <= rows && column + kConfig.columns <= columns;
        if (!is_whole) {
          run_apart<false>(arguments, tile, shared_address(memory));
        } else if constexpr (kTiles > 1) {
          run_together(arguments, tile, shared_address(memory));
        } else {
          run_apart<true>(arguments, tile, shared_address(memory));
        }
        __syncthreads();  // before the buffers are refilled
      }
    }
  }
};

}  // namespace dorajit::kernels
