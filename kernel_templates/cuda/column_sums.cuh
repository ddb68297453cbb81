// Kernels with sums per column, in one pass over the matrices.
//
// Program (x, y) covers block_size columns and rows_per_program rows. Its threads form lanes of
// columns (vector_width columns each) and lanes of rows. A lane of rows sums a run of consecutive
// rows up the tree in registers; shared memory combines the lanes. The result is one node of each
// column's tree: the complete sum if the tree has only one such node, else a partial sum that
// finish_sums.cuh adds.
//
// Runs are leaves because a tree over single rows keeps a number per level and column: 160 to 200
// registers per thread, and spills with 512 threads. Programs at the last columns take a path of
// their own: bounds checks in the vector path would cost every program 40 registers.
//
// With several sums, rows in flight wait in shared memory: in registers, those of three inputs and
// the nodes of two trees leave so few warps on an SM that loads and arithmetic hardly overlap
// (GatedSiluBackward on an H200: 0.83 of a copy's bandwidth, and 0.94 from shared memory). One sum
// is as fast either way.
#pragma once

#include "cuda/broadcast_values.cuh"
#include "cuda/finish_sums.cuh"
#include "cuda/tile_copy.cuh"
#include "math/pairwise_sum.h"

namespace dorajit::kernels {

// The last Op::kUnroll rows of the matrix inputs that a thread has begun to copy to shared memory.
// It copies and reads its own vectors alone, so there are no barriers.
template <class Op>
struct RowRing {
  static constexpr bool kIsUsed = Op::F::kSums > 1 && Op::kWidth > 1;
  static constexpr int kStages = Op::kUnroll;

  // Bytes of one element of each of the first `inputs` matrix inputs.
  static constexpr int bytes_before(int inputs) {
    int bytes = 0;
    for (int i = 0; i < inputs; ++i) bytes += size_in_bytes(Op::kType[i]);
    return bytes;
  }
  static constexpr int kVectors = Op::kThreads * Op::kWidth;
  static constexpr int kStageBytes = kVectors * bytes_before(Op::kMatrixInputs);

  char* memory;  // of the program

  // Copies kBytes (4, 8 or 16) to shared memory; asynchronously from sm_80 on.
  template <int kBytes>
  static __device__ __forceinline__ void start_copy(void* to, const void* from) {
#if __CUDA_ARCH__ >= 800
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(to));
    if constexpr (kBytes == 16) {
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from)
                   : "memory");
    } else {
      asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(address), "l"(from),
                   "n"(kBytes)
                   : "memory");
    }
#else
    Words<kBytes / 4> words;
    load_words<kBytes, false>(static_cast<const char*>(from), words);
    store_words<kBytes, false>(static_cast<char*>(to), words);
#endif
  }
  static __device__ __forceinline__ void end_row() {
#if __CUDA_ARCH__ >= 800
    end_copies();
#endif
  }
  // Waits until all but the last kPending rows have arrived.
  template <int kPending>
  static __device__ __forceinline__ void wait() {
#if __CUDA_ARCH__ >= 800
    wait_for_copies<kPending>();
#endif
  }

  template <int kInput>
  __device__ __forceinline__ char* vector_of(long long row) const {
    return memory + row % kStages * kStageBytes + kVectors * bytes_before(kInput) +
           threadIdx.x * (Op::kWidth * size_in_bytes(Op::kType[kInput]));
  }

  // Begins to copy the vectors at (first + row, col).
  template <int kInput = 0>
  __device__ __forceinline__ void copy(const KernelArguments& arguments, long long first, int row,
                                       long long col) const {
    if constexpr (kInput < Op::kMatrixInputs) {
      if constexpr (Op::is_present(kInput)) {
        constexpr int kSize = size_in_bytes(Op::kType[kInput]);
        const OperandArgument& operand = arguments.operands[kInput];
        start_copy<Op::kWidth * kSize>(vector_of<kInput>(row),
                                       static_cast<const char*>(operand.data) +
                                           ((first + row) * operand.row_stride + col) * kSize);
      }
      copy<kInput + 1>(arguments, first, row, col);
    }
  }

  template <int kInput = 0>
  __device__ __forceinline__ void read(int row, typename Op::Inputs& inputs) const {
    if constexpr (kInput < Op::kMatrixInputs) {
      if constexpr (Op::is_present(kInput)) {
        load_words<Op::kWidth * size_in_bytes(Op::kType[kInput]), false>(vector_of<kInput>(row),
                                                                         inputs.raw[kInput]);
      }
      read<kInput + 1>(row, inputs);
    }
  }
};

// The share of one thread: Op::kWidth columns of kRuns runs of rows; all columns exist. Sum s of
// column i is tree s * kWidth + i.
template <class Op, int kRuns, int kTrees = Op::F::kSums * Op::kWidth>
struct ColumnLane {
  using T = typename Op::T;
  using F = typename Op::F;
  static constexpr int kWidth = Op::kWidth;
  static constexpr int kUnroll = Op::kUnroll;

  static constexpr int log2(int value) { return value <= 1 ? 0 : 1 + log2(value / 2); }

  using Columns = ColumnValues<Op, 1>;
  using Sum = PairwiseSum<T, log2(kRuns) + 1, kTrees>;

  // kRows rows: all loads come before all uses.
  template <int kRows>
  struct Rows {
    typename Op::Inputs inputs[kRows];

    __device__ __forceinline__ void load(const KernelArguments& arguments, long long row,
                                         long long col) {
#pragma unroll
      for (int u = 0; u < kRows; ++u) inputs[u].load(arguments, row + u, col, kWidth);
    }

    // Stores the outputs of the formula, and adds its terms to the run.
    __device__ __forceinline__ void finish(const KernelArguments& arguments, const F& formula,
                                           const Columns& columns, long long row, long long col,
                                           T (&run)[kTrees]) const {
#pragma unroll
      for (int u = 0; u < kRows; ++u) {
        typename Op::Outputs outputs;
        Op::evaluate(
            formula, inputs[u], [&](int i) -> const T* { return columns.value[0][i]; }, outputs,
            [&](int i, const T(&output)[F::kOutputs]) {
#pragma unroll
              for (int s = 0; s < F::kSums; ++s) {
                run[s * kWidth + i] = run[s * kWidth + i] + output[F::kOutputs - F::kSums + s];
              }
            });
        outputs.store(arguments, row + u, col, kWidth);
      }
    }
  };

  static __device__ __forceinline__ void begin_run(T (&run)[kTrees]) {
#pragma unroll
    for (int i = 0; i < kTrees; ++i) run[i] = absent_term<T>();
  }

  // The node above kRuns complete runs from `row` on. The first rows' loads are issued before those
  // of the broadcast operands, so that both are in flight before either is needed.
  static __device__ __forceinline__ void sum_in_flight(const KernelArguments& arguments,
                                                       const F& formula, char* shared,
                                                       long long row, long long col,
                                                       T (&node)[kTrees]) {
    constexpr int kAhead = kUnroll - 1;
    constexpr int kEnd = kRuns * kRunLength;
    const RowRing<Op> ring{shared};
    Columns columns;
    Sum sum;
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      ring.copy(arguments, row, i, col);
      ring.end_row();
    }
    columns.load(arguments, col, 0, kWidth);
    columns.widen();
#pragma unroll 1
    for (int run = 0; run < kRuns; ++run) {
      begin_run(node);
#pragma unroll 1
      for (int i = run * kRunLength; i < (run + 1) * kRunLength; ++i) {
        if (i + kAhead < kEnd) ring.copy(arguments, row, i + kAhead, col);
        ring.end_row();
        ring.template wait<kAhead>();
        Rows<1> rows;
        ring.read(i, rows.inputs[0]);
        rows.finish(arguments, formula, columns, row + i, col, node);
      }
      sum.push(run, node);
    }
  }

  // The same with the rows in flight in registers.
  static __device__ __forceinline__ void sum_whole(const KernelArguments& arguments,
                                                   const F& formula, long long row, long long col,
                                                   T (&node)[kTrees]) {
    Columns columns;
    Sum sum;
    begin_run(node);
    {
      Rows<kUnroll> rows;
      rows.load(arguments, row, col);
      columns.load(arguments, col, 0, kWidth);
      columns.widen();
      rows.finish(arguments, formula, columns, row, col, node);
    }
#pragma unroll 1
    for (int done = kUnroll;; done += kUnroll) {
      if (done % kRunLength == 0) sum.push(done / kRunLength - 1, node);
      if (done == kRuns * kRunLength) return;
      if (done % kRunLength == 0) begin_run(node);
      Rows<kUnroll> rows;
      rows.load(arguments, row + done, col);
      rows.finish(arguments, formula, columns, row + done, col, node);
    }
  }

  // The same node for the rows [row, last_row), which are fewer, or none.
  static __device__ __forceinline__ void sum_cut(const KernelArguments& arguments, const F& formula,
                                                 long long row, long long last_row, long long col,
                                                 T (&node)[kTrees]) {
    Columns columns;
    columns.load(arguments, col, 0, kWidth);
    columns.widen();
    Sum sum;
#pragma unroll 1
    for (int run = 0; run < kRuns; ++run) {
      begin_run(node);
#pragma unroll 1
      for (int i = 0; i < kRunLength && row < last_row; ++i, ++row) {
        Rows<1> rows;
        rows.load(arguments, row, col);
        rows.finish(arguments, formula, columns, row, col, node);
      }
      sum.push(run, node);
    }
  }

  static __device__ __forceinline__ void sum(const KernelArguments& arguments, const F& formula,
                                             char* shared, long long first_row, long long col,
                                             T (&node)[kTrees]) {
    if (first_row + kRuns * kRunLength <= arguments.sizes[kRows]) {
      if constexpr (RowRing<Op>::kIsUsed) {
        sum_in_flight(arguments, formula, shared, first_row, col, node);
      } else {
        sum_whole(arguments, formula, first_row, col, node);
      }
    } else {
      sum_cut(arguments, formula, first_row, arguments.sizes[kRows], col, node);
    }
  }
};

template <template <class> class Formula, StreamingConfig kConfig, ElementType... kTypes>
struct ColumnSumsKernel : Operands<Formula, kConfig, kTypes...> {
  using Op = Operands<Formula, kConfig, kTypes...>;
  using Op::kThreads;
  using Op::kWidth;
  using typename Op::F;
  using typename Op::T;

  static_assert(is_valid_for_cuda_column_sums(kConfig),
                "num_warps, block_size, rows_per_program and unroll must be powers of two, with "
                "rows_per_program at least 256, at least 8 rows for every thread, and unroll at "
                "most 8");
  static_assert(F::kSums > 0);

  static constexpr int kColumnLanes = kConfig.block_size / kWidth;
  static constexpr int kRowLanes = kThreads / kColumnLanes;
  static constexpr int kRowsPerLane = kConfig.rows_per_program / kRowLanes;
  static constexpr int kRuns = kRowsPerLane / kRunLength;

  static constexpr StreamingConfig kNarrow{
      kConfig.block_size, kConfig.num_warps, kConfig.rows_per_program, 1, 1, kConfig.cache_policy};
  using WholeLane = ColumnLane<Op, kRuns>;
  using NarrowLane = ColumnLane<Operands<Formula, kNarrow, kTypes...>, kRuns>;

  // The nodes above this thread's rows and columns. If the columns end within the block, a thread
  // processes its columns one at a time.
  static __device__ __forceinline__ void sum_lane(const KernelArguments& arguments,
                                                  const F& formula, char* shared, bool is_whole,
                                                  long long first_row, long long col,
                                                  T (&node)[F::kSums * kWidth]) {
    if (is_whole) {
      WholeLane::sum(arguments, formula, shared, first_row, col, node);
      return;
    }
#pragma unroll
    for (int i = 0; i < F::kSums * kWidth; ++i) node[i] = absent_term<T>();
#pragma unroll 1
    for (int i = 0; i < kWidth && col + i < arguments.sizes[kCols]; ++i) {
      T one[F::kSums];
      NarrowLane::sum(arguments, formula, shared, first_row, col + i, one);
#pragma unroll
      for (int j = 0; j < F::kSums * kWidth; ++j)
        node[j] = i == j % kWidth ? one[j / kWidth] : node[j];
    }
  }

  static __device__ __forceinline__ void run(const KernelArguments& arguments) {
    using Nodes = T[kRowLanes][F::kSums][kConfig.block_size];
    constexpr bool kHasRing = RowRing<Op>::kIsUsed;
    char* shared = nullptr;  // the rows in flight, and then the nodes of the lanes
    Nodes* all_nodes = nullptr;
    if constexpr (kHasRing) {
      extern __shared__ __align__(16) char memory[];
      shared = memory;
      all_nodes = reinterpret_cast<Nodes*>(memory);
    } else {
      __shared__ Nodes memory;
      all_nodes = &memory;
    }
    Nodes& nodes = *all_nodes;
    const F formula(arguments.scalars);
    const SumLayout layout =
        sum_layout(Broadcast::kPerColumn, arguments.sizes[kRows], arguments.sizes[kCols],
                   arguments.sizes[kCols], kConfig.rows_per_program);
    const int column_lane = threadIdx.x % kColumnLanes;
    const int row_lane = threadIdx.x / kColumnLanes;
    const long long stride = static_cast<long long>(gridDim.x) * kConfig.block_size;
    long long block_start = static_cast<long long>(blockIdx.x) * kConfig.block_size;
    let_second_stage_start();
    do {
      const long long col = block_start + column_lane * kWidth;
      long long group = blockIdx.y;
      do {
        T node[F::kSums * kWidth];
        sum_lane(arguments, formula, shared,
                 block_start + kConfig.block_size <= arguments.sizes[kCols],
                 group * kConfig.rows_per_program + row_lane * kRowsPerLane, col, node);
        if constexpr (kHasRing) __syncthreads();
#pragma unroll
        for (int i = 0; i < F::kSums * kWidth; ++i) {
          nodes[row_lane][i / kWidth][column_lane * kWidth + i % kWidth] = node[i];
        }
        __syncthreads();
        for (int c = threadIdx.x; c < kConfig.block_size; c += kThreads) {
          T lanes[F::kSums][kRowLanes];
#pragma unroll
          for (int i = 0; i < F::kSums * kRowLanes; ++i) {
            lanes[i / kRowLanes][i % kRowLanes] = nodes[i % kRowLanes][i / kRowLanes][c];
          }
          if (block_start + c < arguments.sizes[kCols]) {
            T sums[F::kSums];
#pragma unroll
            for (int s = 0; s < F::kSums; ++s) sums[s] = sum_of_neighbours<kRowLanes>(lanes[s]);
            put_sums<Op>(arguments, layout, group, block_start + c, sums);
          }
        }
        __syncthreads();
        group += gridDim.y;
      } while (group < layout.row_groups);
      block_start += stride;
    } while (block_start < arguments.sizes[kCols]);
  }
};

}  // namespace dorajit::kernels

// The code that is generated per kernel. `config` is in parentheses.
#define DORAJIT_COLUMN_SUMS_KERNEL(formula, config, broadcast, ...)                         \
  static_assert(broadcast == dorajit::kernels::Broadcast::kPerColumn);                      \
  extern "C" __global__ void __launch_bounds__(                                             \
      config.num_warps* dorajit::kernels::kThreadsPerWarp, 1)                               \
      dorajit_kernel(const __grid_constant__ dorajit::kernels::KernelArguments arguments) { \
    dorajit::kernels::ColumnSumsKernel<formula, config, __VA_ARGS__>::run(arguments);       \
  }                                                                                         \
  DORAJIT_FINISH_SUMS_KERNEL(formula, config, broadcast, __VA_ARGS__)
