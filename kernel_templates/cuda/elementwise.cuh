// Elementwise kernels over rows x columns with operands that are broadcast along the rows.
//
// Program (x, y) covers columns [x * block_size, ...) and rows [y * rows_per_program, ...). Each
// thread keeps the column operands of its columns in registers and streams the rows past them, with
// the loads of `unroll` rows in flight before the first is used. Both grid dimensions are strided,
// so any size is covered by any grid.
#pragma once

#include "arguments.h"
#include "config.h"
#include "cuda/vector_access.cuh"

namespace dorajit::kernels {

template <template <class> class Formula, Config kConfig, ElementType... kTypes>
struct ElementwiseKernel {
  static_assert(is_valid_for_cuda(kConfig),
                "block_size must be a multiple of num_warps * 32 * vector_width, and "
                "rows_per_program a multiple of unroll");

  using T = ComputeType<kTypes...>;
  using F = Formula<T>;

  static constexpr ElementType kType[sizeof...(kTypes)] = {kTypes...};
  static constexpr int kMatrixInputs = F::kMatrixInputs;
  static constexpr int kColumnInputs = F::kColumnInputs;
  static constexpr int kOutputs = F::kOutputs;
  static constexpr int kFirstColumn = kMatrixInputs;
  static constexpr int kFirstOutput = kMatrixInputs + kColumnInputs;
  static_assert(sizeof...(kTypes) == kFirstOutput + kOutputs, "one element type per operand");

  static constexpr int kThreads = kConfig.num_warps * kThreadsPerWarp;
  static constexpr int kWidth = kConfig.vector_width;
  static constexpr int kVectors = kConfig.block_size / (kThreads * kWidth);
  static constexpr int kUnroll = kConfig.unroll;

  static constexpr int largest_operand() {
    int largest = 0;
    for (ElementType type : kType) {
      if (size_in_bytes(type) > largest) largest = size_in_bytes(type);
    }
    return largest;
  }
  using Vector = Words<words_for(kWidth* largest_operand())>;

  static __device__ __forceinline__ long long column_of(long long block_start, int vector) {
    return block_start + (static_cast<long long>(vector) * kThreads + threadIdx.x) * kWidth;
  }

  // kWhole: every vector lies within its row, so nothing has to be guarded.
  template <bool kWhole, int kOperand>
  static __device__ __forceinline__ void load_columns(
      const KernelArguments& arguments, long long block_start,
      T (&column)[kVectors][kWidth][kColumnInputs + 1]) {
    if constexpr (kOperand < kColumnInputs) {
      constexpr ElementType kElement = kType[kFirstColumn + kOperand];
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        const long long col = column_of(block_start, v);
        Vector words{};
        load_vector<kElement, kWidth, false>(arguments.operands[kFirstColumn + kOperand].data, col,
                                             kWhole ? kWidth : arguments.num_cols - col, words);
#pragma unroll
        for (int i = 0; i < kWidth; ++i) {
          column[v][i][kOperand] = Element<kElement>::widen(get_bits<kElement>(words, i));
        }
      }
      load_columns<kWhole, kOperand + 1>(arguments, block_start, column);
    }
  }

  template <int kOperand>
  static __device__ __forceinline__ void load_inputs(const KernelArguments& arguments,
                                                     long long row, long long col,
                                                     long long remaining,
                                                     Vector (&raw)[kMatrixInputs]) {
    if constexpr (kOperand < kMatrixInputs) {
      const OperandArgument& operand = arguments.operands[kOperand];
      load_vector<kType[kOperand], kWidth, streams_loads(kConfig.cache_policy)>(
          operand.data, row * operand.row_stride + col, remaining, raw[kOperand]);
      load_inputs<kOperand + 1>(arguments, row, col, remaining, raw);
    }
  }

  template <int kOperand>
  static __device__ __forceinline__ void widen_inputs(const Vector (&raw)[kMatrixInputs], int index,
                                                      T (&matrix)[kMatrixInputs]) {
    if constexpr (kOperand < kMatrixInputs) {
      constexpr ElementType kElement = kType[kOperand];
      matrix[kOperand] = Element<kElement>::widen(get_bits<kElement>(raw[kOperand], index));
      widen_inputs<kOperand + 1>(raw, index, matrix);
    }
  }

  template <int kOperand>
  static __device__ __forceinline__ void narrow_outputs(const T (&output)[kOutputs], int index,
                                                        Vector (&raw)[kOutputs]) {
    if constexpr (kOperand < kOutputs) {
      constexpr ElementType kElement = kType[kFirstOutput + kOperand];
      set_bits<kElement>(raw[kOperand], index, Element<kElement>::narrow(output[kOperand]));
      narrow_outputs<kOperand + 1>(output, index, raw);
    }
  }

  template <int kOperand>
  static __device__ __forceinline__ void store_outputs(const KernelArguments& arguments,
                                                       long long row, long long col,
                                                       long long remaining,
                                                       const Vector (&raw)[kOutputs]) {
    if constexpr (kOperand < kOutputs) {
      const OperandArgument& operand = arguments.operands[kFirstOutput + kOperand];
      store_vector<kType[kFirstOutput + kOperand], kWidth, streams_stores(kConfig.cache_policy)>(
          operand.data, row * operand.row_stride + col, remaining, raw[kOperand]);
      store_outputs<kOperand + 1>(arguments, row, col, remaining, raw);
    }
  }

  static __device__ __forceinline__ void evaluate(const F& formula,
                                                  const Vector (&raw)[kMatrixInputs],
                                                  const T (&column)[kWidth][kColumnInputs + 1],
                                                  Vector (&result)[kOutputs]) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      T matrix[kMatrixInputs];
      T output[kOutputs];
      widen_inputs<0>(raw, i, matrix);
      formula(matrix, column[i], output);
      narrow_outputs<0>(output, i, result);
    }
  }

  // kRows rows that exist, of columns that all exist: every load is issued before the first use.
  template <int kRows>
  static __device__ __forceinline__ void run_whole_rows(
      const KernelArguments& arguments, const F& formula,
      const T (&column)[kVectors][kWidth][kColumnInputs + 1], long long block_start,
      long long first_row) {
    Vector raw[kRows][kVectors][kMatrixInputs];
#pragma unroll
    for (int u = 0; u < kRows; ++u) {
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        load_inputs<0>(arguments, first_row + u, column_of(block_start, v), kWidth, raw[u][v]);
      }
    }
#pragma unroll
    for (int u = 0; u < kRows; ++u) {
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        Vector result[kOutputs];
        evaluate(formula, raw[u][v], column[v], result);
        store_outputs<0>(arguments, first_row + u, column_of(block_start, v), kWidth, result);
      }
    }
  }

  static __device__ __forceinline__ void run_cut_row(
      const KernelArguments& arguments, const F& formula,
      const T (&column)[kVectors][kWidth][kColumnInputs + 1], long long block_start,
      long long row) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const long long col = column_of(block_start, v);
      const long long remaining = arguments.num_cols - col;
      if (remaining <= 0) return;
      Vector raw[kMatrixInputs];
      Vector result[kOutputs];
      load_inputs<0>(arguments, row, col, remaining, raw);
      evaluate(formula, raw, column[v], result);
      store_outputs<0>(arguments, row, col, remaining, result);
    }
  }

  template <bool kWhole>
  static __device__ __forceinline__ void run_columns(const KernelArguments& arguments,
                                                     const F& formula, long long block_start) {
    T column[kVectors][kWidth][kColumnInputs + 1];
    load_columns<kWhole, 0>(arguments, block_start, column);
    const long long num_rows = arguments.num_rows;
    const long long stride = static_cast<long long>(gridDim.y) * kConfig.rows_per_program;
    for (long long first_row = static_cast<long long>(blockIdx.y) * kConfig.rows_per_program;
         first_row < num_rows; first_row += stride) {
      long long last_row = first_row + kConfig.rows_per_program;
      if (last_row > num_rows) last_row = num_rows;
      long long row = first_row;
      if constexpr (kWhole) {
#pragma unroll 1
        for (; row + kUnroll <= last_row; row += kUnroll) {
          run_whole_rows<kUnroll>(arguments, formula, column, block_start, row);
        }
      }
#pragma unroll 1
      for (; row < last_row; ++row) {
        if constexpr (kWhole) {
          run_whole_rows<1>(arguments, formula, column, block_start, row);
        } else {
          run_cut_row(arguments, formula, column, block_start, row);
        }
      }
    }
  }

  static __device__ __forceinline__ void run(const KernelArguments& arguments) {
    const F formula(arguments.scalars);
    const long long stride = static_cast<long long>(gridDim.x) * kConfig.block_size;
    for (long long block_start = static_cast<long long>(blockIdx.x) * kConfig.block_size;
         block_start < arguments.num_cols; block_start += stride) {
      if (block_start + kConfig.block_size <= arguments.num_cols) {
        run_columns<true>(arguments, formula, block_start);
      } else {
        run_columns<false>(arguments, formula, block_start);
      }
    }
  }
};

}  // namespace dorajit::kernels

// The one line that is generated per kernel. `config` stands in parentheses.
#define DORAJIT_ELEMENTWISE_KERNEL(formula, config, ...)                                    \
  extern "C" __global__ void __launch_bounds__(                                             \
      config.num_warps* dorajit::kernels::kThreadsPerWarp)                                  \
      dorajit_kernel(const __grid_constant__ dorajit::kernels::KernelArguments arguments) { \
    dorajit::kernels::ElementwiseKernel<formula, config, __VA_ARGS__>::run(arguments);      \
  }
