// Elementwise kernels on the CPU: the counterpart of cuda/elementwise.cuh.
//
// Programs are numbered with columns fastest; a worker runs a range of them. The inner loop is
// plain enough for the host compiler to vectorise. An output may be exactly an input (in place),
// never a shifted one, so iterations are independent.
#pragma once

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "arguments.h"
#include "config.h"
#include "cpu/elements.h"

#if defined(__clang__)
#define DORAJIT_INDEPENDENT_ITERATIONS _Pragma("clang loop vectorize(assume_safety)")
#else
#define DORAJIT_INDEPENDENT_ITERATIONS _Pragma("GCC ivdep")
#endif

namespace dorajit::kernels {

// Copies `count` elements past the caches where the machine and the addresses allow it.
template <class Storage>
inline void stream_out(Storage* destination, const Storage* source, long long count) {
  long long i = 0;
#ifdef __SSE2__
  constexpr long long kPerStore = 16 / static_cast<long long>(sizeof(Storage));
  while (i < count && reinterpret_cast<unsigned long long>(destination + i) % 16 != 0) {
    destination[i] = source[i];
    ++i;
  }
  for (; i + kPerStore <= count; i += kPerStore) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(destination + i),
                     _mm_loadu_si128(reinterpret_cast<const __m128i*>(source + i)));
  }
#endif
  for (; i < count; ++i) destination[i] = source[i];
}

inline void finish_streaming() {
#ifdef __SSE2__
  _mm_sfence();
#endif
}

template <template <class> class Formula, Config kConfig, ElementType... kTypes>
struct ElementwiseKernel {
  static_assert(is_valid_for_cpu(kConfig), "CPU configs have vector_width 1 and unroll 1");

  using T = ComputeType<kTypes...>;
  using F = Formula<T>;

  static constexpr ElementType kType[sizeof...(kTypes)] = {kTypes...};
  static constexpr int kMatrixInputs = F::kMatrixInputs;
  static constexpr int kColumnInputs = F::kColumnInputs;
  static constexpr int kOutputs = F::kOutputs;
  static constexpr int kFirstOutput = kMatrixInputs + kColumnInputs;
  static constexpr int kOperands = kFirstOutput + kOutputs;
  static constexpr bool kStream = kConfig.cache_policy == CachePolicy::kStreamAll;
  static constexpr long long kTile = 512;
  static_assert(sizeof...(kTypes) == kOperands, "one element type per operand");

  template <int kOperand>
  using StorageOf = typename Element<kType[kOperand]>::Storage;

  template <int kOperand>
  static inline __attribute__((always_inline)) void widen_inputs(void* const (&data)[kOperands],
                                                                 long long i, T* values) {
    if constexpr (kOperand < kFirstOutput) {
      values[kOperand] = Element<kType[kOperand]>::widen(
          static_cast<const StorageOf<kOperand>*>(data[kOperand])[i]);
      widen_inputs<kOperand + 1>(data, i, values);
    }
  }

  template <int kOperand>
  static inline __attribute__((always_inline)) void narrow_outputs(const T* output, long long i,
                                                                   void* const (&data)[kOperands]) {
    if constexpr (kOperand < kOperands) {
      static_cast<StorageOf<kOperand>*>(data[kOperand])[i] =
          Element<kType[kOperand]>::narrow(output[kOperand - kFirstOutput]);
      narrow_outputs<kOperand + 1>(output, i, data);
    }
  }

  static inline __attribute__((always_inline)) void run_span(const F& formula,
                                                             void* const (&data)[kOperands],
                                                             long long count) {
    DORAJIT_INDEPENDENT_ITERATIONS
    for (long long i = 0; i < count; ++i) {
      T values[kFirstOutput];
      T output[kOutputs];
      widen_inputs<0>(data, i, values);
      formula(values, values + kMatrixInputs, output);
      narrow_outputs<kFirstOutput>(output, i, data);
    }
  }

  template <int kOperand>
  static inline void point_at(const KernelArguments& arguments, long long row, long long col,
                              void* (&data)[kOperands]) {
    if constexpr (kOperand < kOperands) {
      const OperandArgument& operand = arguments.operands[kOperand];
      data[kOperand] =
          static_cast<StorageOf<kOperand>*>(operand.data) + (row * operand.row_stride + col);
      point_at<kOperand + 1>(arguments, row, col, data);
    }
  }

  template <int kOutput>
  static inline void stream_outputs(const KernelArguments& arguments, long long row, long long col,
                                    void* const (&data)[kOperands], long long count) {
    if constexpr (kOutput < kOutputs) {
      using Storage = StorageOf<kFirstOutput + kOutput>;
      const OperandArgument& operand = arguments.operands[kFirstOutput + kOutput];
      stream_out(static_cast<Storage*>(operand.data) + (row * operand.row_stride + col),
                 static_cast<const Storage*>(data[kFirstOutput + kOutput]), count);
      stream_outputs<kOutput + 1>(arguments, row, col, data, count);
    }
  }

  static inline void run_row(const KernelArguments& arguments, const F& formula, long long row,
                             long long first_col, long long last_col) {
    void* data[kOperands];
    if constexpr (!kStream) {
      point_at<0>(arguments, row, first_col, data);
      run_span(formula, data, last_col - first_col);
    } else {
      alignas(64) T tile[kOutputs][kTile];
      for (long long col = first_col; col < last_col; col += kTile) {
        const long long count = last_col - col < kTile ? last_col - col : kTile;
        point_at<0>(arguments, row, col, data);
        for (int output = 0; output < kOutputs; ++output) {
          data[kFirstOutput + output] = tile[output];
        }
        run_span(formula, data, count);
        stream_outputs<0>(arguments, row, col, data, count);
      }
    }
  }

  static void run(const KernelArguments& arguments, long long first_program,
                  long long last_program) {
    const F formula(arguments.scalars);
    const long long column_blocks =
        (arguments.num_cols + kConfig.block_size - 1) / kConfig.block_size;
    for (long long program = first_program; program < last_program; ++program) {
      const long long first_col = program % column_blocks * kConfig.block_size;
      const long long first_row = program / column_blocks * kConfig.rows_per_program;
      const long long last_col = first_col + kConfig.block_size < arguments.num_cols
                                     ? first_col + kConfig.block_size
                                     : arguments.num_cols;
      const long long last_row = first_row + kConfig.rows_per_program < arguments.num_rows
                                     ? first_row + kConfig.rows_per_program
                                     : arguments.num_rows;
      for (long long row = first_row; row < last_row; ++row) {
        run_row(arguments, formula, row, first_col, last_col);
      }
    }
    if constexpr (kStream) finish_streaming();
  }
};

}  // namespace dorajit::kernels

// The one line that is generated per kernel. `config` stands in parentheses.
#define DORAJIT_ELEMENTWISE_KERNEL(formula, config, ...)                           \
  extern "C" __attribute__((visibility("default"))) void dorajit_kernel(           \
      const dorajit::kernels::KernelArguments* arguments, long long first_program, \
      long long last_program) {                                                    \
    dorajit::kernels::ElementwiseKernel<formula, config, __VA_ARGS__>::run(        \
        *arguments, first_program, last_program);                                  \
  }
