// Elementwise kernels over rows x columns with operands that are broadcast along one axis.
//
// Program (x, y) covers columns [x * block_size, ...) and rows [y * rows_per_program, ...). Each
// thread keeps the broadcast operands of its columns in registers and streams through the rows,
// with the loads of `unroll` rows in flight before the first is used. Both grid dimensions use a
// grid stride, so any grid covers any size.
#pragma once

#include "cuda/broadcast_values.cuh"

namespace dorajit::kernels {

template <template <class> class Formula, StreamingConfig kConfig, Broadcast kBroadcast,
          ElementType... kTypes>
struct ElementwiseKernel : Operands<Formula, kConfig, kTypes...> {
  using Op = Operands<Formula, kConfig, kTypes...>;
  using Op::kThreads;
  using Op::kUnroll;
  using Op::kWidth;
  using typename Op::F;
  using typename Op::Inputs;
  using typename Op::Outputs;
  using typename Op::T;

  static constexpr bool kPerRow = kBroadcast == Broadcast::kPerRow;
  static constexpr int kVectors = kConfig.block_size / (kThreads * kWidth);
  static_assert(is_valid_for_cuda_elementwise(kConfig),
                "block_size must be a multiple of num_warps * 32 * vector_width");

  static constexpr int kVectorStride = kThreads * kWidth;
  using Columns = ColumnValues<Op, kPerRow ? 1 : kVectors>;

  // kRows rows of all vectors of this thread: all loads come before all uses.
  template <int kRows>
  struct Rows {
    Inputs inputs[kRows][kVectors];
    RowValues<Op> row_values[kRows];

    __device__ __forceinline__ void load(const KernelArguments& arguments, long long row,
                                         long long col, long long remaining) {
#pragma unroll
      for (int u = 0; u < kRows; ++u) {
        if constexpr (kPerRow) {
          row_values[u].load(arguments, channel_of_row(row + u, arguments.sizes[kChannels]));
        }
#pragma unroll
        for (int v = 0; v < kVectors; ++v) {
          inputs[u][v].load(arguments, row + u, col + v * kVectorStride,
                            remaining - v * kVectorStride);
        }
      }
    }

    __device__ __forceinline__ void finish(const KernelArguments& arguments, const F& formula,
                                           const Columns& columns, long long row, long long col,
                                           long long remaining) const {
#pragma unroll
      for (int u = 0; u < kRows; ++u) {
#pragma unroll
        for (int v = 0; v < kVectors; ++v) {
          Outputs outputs;
          auto broadcast_at = [&](int i) -> const T* {
            if constexpr (kPerRow) {
              return row_values[u].value;
            } else {
              return columns.value[v][i];
            }
          };
          Op::evaluate(formula, inputs[u][v], broadcast_at, outputs, [](int, const auto&) {});
          outputs.store(arguments, row + u, col + v * kVectorStride, remaining - v * kVectorStride);
        }
      }
    }
  };

  static __device__ __forceinline__ void load_columns(const KernelArguments& arguments,
                                                      long long col, long long remaining,
                                                      Columns& columns) {
    if constexpr (!kPerRow) {
      columns.load(arguments, col, kVectorStride, remaining);
      columns.widen();
    }
  }

  template <int kRows>
  static __device__ __forceinline__ void run_rows(const KernelArguments& arguments,
                                                  const F& formula, const Columns& columns,
                                                  long long row, long long col,
                                                  long long remaining) {
    Rows<kRows> rows;
    rows.load(arguments, row, col, remaining);
    rows.finish(arguments, formula, columns, row, col, remaining);
  }

  // Computes the rows from `row` on, for all programs that this one executes by grid stride;
  // `first_row` is the first row of the current one. `remaining` columns from `col` on exist; with
  // kWhole, `remaining` is a constant beyond every vector, so the compiler drops the guards.
  template <bool kWhole>
  static __device__ __forceinline__ void run_programs(const KernelArguments& arguments,
                                                      const F& formula, const Columns& columns,
                                                      long long first_row, long long row,
                                                      long long col, long long remaining) {
    const long long num_rows = arguments.sizes[kRows];
    const long long stride = static_cast<long long>(gridDim.y) * kConfig.rows_per_program;
    for (;;) {
      long long last_row = first_row + kConfig.rows_per_program;
      if (last_row > num_rows) last_row = num_rows;
      if constexpr (kWhole) {
#pragma unroll 1
        for (; row + kUnroll <= last_row; row += kUnroll) {
          run_rows<kUnroll>(arguments, formula, columns, row, col, remaining);
        }
      }
#pragma unroll 1
      for (; row < last_row; ++row) {
        run_rows<1>(arguments, formula, columns, row, col, remaining);
      }
      first_row += stride;
      if (first_row >= num_rows) return;
      row = first_row;
    }
  }

  static __device__ __forceinline__ void run(const KernelArguments& arguments) {
    const long long num_rows = arguments.sizes[kRows];
    const long long num_cols = arguments.sizes[kCols];
    const long long column_stride = static_cast<long long>(gridDim.x) * kConfig.block_size;
    const long long row_stride = static_cast<long long>(gridDim.y) * kConfig.rows_per_program;
    const long long first_row = static_cast<long long>(blockIdx.y) * kConfig.rows_per_program;
    long long block_start = static_cast<long long>(blockIdx.x) * kConfig.block_size;
    long long col = block_start + static_cast<long long>(threadIdx.x) * kWidth;

    // Nearly every program runs this block, and most run nothing else: a straight path from the
    // first load to the end, because small launches take little longer than fetching their code.
    // The broadcast operands are loaded after the first rows, so that nothing waits for them alone;
    // the scalars are narrowed while the loads are in flight.
    if (block_start + kConfig.block_size <= num_cols &&
        (kUnroll == 1 || first_row + kUnroll <= num_rows)) {
      Rows<kUnroll> rows;
      Columns columns;
      rows.load(arguments, first_row, col, kConfig.block_size);
      load_columns(arguments, col, kConfig.block_size, columns);
      const F formula(arguments.scalars);
      rows.finish(arguments, formula, columns, first_row, col, kConfig.block_size);
      const bool has_more_rows =
          kConfig.rows_per_program > kUnroll || first_row + row_stride < num_rows;
      block_start += column_stride;
      if (!has_more_rows && block_start >= num_cols) return;
      run_programs<true>(arguments, formula, columns, first_row, first_row + kUnroll, col,
                         kConfig.block_size);
      if (block_start >= num_cols) return;
    }
    const F formula(arguments.scalars);
    do {
      Columns columns;
      col = block_start + static_cast<long long>(threadIdx.x) * kWidth;
      if (block_start + kConfig.block_size <= num_cols) {
        load_columns(arguments, col, kConfig.block_size, columns);
        run_programs<true>(arguments, formula, columns, first_row, first_row, col,
                           kConfig.block_size);
      } else {
        load_columns(arguments, col, num_cols - col, columns);
        run_programs<false>(arguments, formula, columns, first_row, first_row, col, num_cols - col);
      }
      block_start += column_stride;
    } while (block_start < num_cols);
  }
};

}  // namespace dorajit::kernels

// The compiler chooses the number of blocks per SM. If it spills registers to reach that number,
// the runtime compiles again with this macro, which requires only one block per SM.
#ifdef DORAJIT_ONE_BLOCK_PER_SM
#define DORAJIT_ELEMENTWISE_BOUNDS(threads) __launch_bounds__(threads, 1)
#else
#define DORAJIT_ELEMENTWISE_BOUNDS(threads) __launch_bounds__(threads)
#endif

// The code that is generated per kernel. `config` is in parentheses.
#define DORAJIT_ELEMENTWISE_KERNEL(formula, config, broadcast, ...)                               \
  extern "C" __global__ void DORAJIT_ELEMENTWISE_BOUNDS(                                          \
      config.num_warps* dorajit::kernels::kThreadsPerWarp)                                        \
      dorajit_kernel(const __grid_constant__ dorajit::kernels::KernelArguments arguments) {       \
    dorajit::kernels::ElementwiseKernel<formula, config, broadcast, __VA_ARGS__>::run(arguments); \
  }
