// The operands of every CUDA template: which ones are present, and how a vector of each is loaded,
// widened, evaluated, narrowed and stored. Absent operands cost nothing.
#pragma once

#include "arguments.h"
#include "broadcast.h"
#include "cuda/vector_access.cuh"
#include "math/evaluated_formula.h"
#include "streaming_config.h"

namespace dorajit::kernels {

template <template <class> class Formula, StreamingConfig kConfig, ElementType... kTypes>
struct Operands {
  static_assert(is_valid_for_cuda(kConfig),
                "block_size must be a multiple of vector_width, and rows_per_program of unroll");

  using T = ComputeType<kTypes...>;
  using F = Formula<T>;

  static constexpr ElementType kType[sizeof...(kTypes)] = {kTypes...};
  static constexpr int kMatrixInputs = F::kMatrixInputs;
  static constexpr int kBroadcastInputs = F::kBroadcastInputs;
  static constexpr int kStored = F::kOutputs - F::kSums;  // outputs with one element per element
  static constexpr int kFirstOutput = kMatrixInputs + kBroadcastInputs;
  static constexpr int kFirstSum = kFirstOutput + kStored;
  static_assert(sizeof...(kTypes) == kFirstSum + F::kSums, "one element type per operand");

  static constexpr int kThreads = kConfig.num_warps * kThreadsPerWarp;
  static constexpr int kWidth = kConfig.vector_width;
  static constexpr int kUnroll = kConfig.unroll;

  static constexpr bool is_present(int operand) { return kType[operand] != ElementType::kAbsent; }

  static constexpr int largest_operand() {
    int largest = 0;
    for (ElementType type : kType) {
      if (size_in_bytes(type) > largest) largest = size_in_bytes(type);
    }
    return largest;
  }
  using Vector = Words<words_for(kWidth* largest_operand())>;

  // One vector of every matrix input, in its memory layout.
  struct Inputs {
    Vector raw[kMatrixInputs];

    __device__ __forceinline__ void load(const KernelArguments& arguments, long long row,
                                         long long col, long long remaining) {
      load_from<0>(arguments, row, col, remaining);
    }

    template <int kOperand>
    __device__ __forceinline__ void load_from(const KernelArguments& arguments, long long row,
                                              long long col, long long remaining) {
      if constexpr (kOperand < kMatrixInputs) {
        if constexpr (is_present(kOperand)) {
          const OperandArgument& operand = arguments.operands[kOperand];
          load_vector<kType[kOperand], kWidth, streams_loads(kConfig.cache_policy)>(
              operand.data, row * operand.row_stride + col, remaining, raw[kOperand]);
        }
        load_from<kOperand + 1>(arguments, row, col, remaining);
      }
    }
  };

  // One vector of every stored output, in its memory layout.
  struct Outputs {
    Vector raw[kStored];

    __device__ __forceinline__ void store(const KernelArguments& arguments, long long row,
                                          long long col, long long remaining) const {
      store_from<0>(arguments, row, col, remaining);
    }

    template <int kOutput>
    __device__ __forceinline__ void store_from(const KernelArguments& arguments, long long row,
                                               long long col, long long remaining) const {
      if constexpr (kOutput < kStored) {
        constexpr int kOperand = kFirstOutput + kOutput;
        if constexpr (is_present(kOperand)) {
          const OperandArgument& operand = arguments.operands[kOperand];
          store_vector<kType[kOperand], kWidth, streams_stores(kConfig.cache_policy)>(
              operand.data, row * operand.row_stride + col, remaining, raw[kOutput]);
        }
        store_from<kOutput + 1>(arguments, row, col, remaining);
      }
    }
  };

  template <int kOperand>
  static __device__ __forceinline__ void widen_inputs(const Inputs& inputs, int index,
                                                      T (&matrix)[kMatrixInputs]) {
    if constexpr (kOperand < kMatrixInputs) {
      if constexpr (is_present(kOperand)) {
        constexpr ElementType kElement = kType[kOperand];
        matrix[kOperand] =
            Element<kElement>::widen(get_bits<kElement>(inputs.raw[kOperand], index));
      } else {
        matrix[kOperand] = T(0);
      }
      widen_inputs<kOperand + 1>(inputs, index, matrix);
    }
  }

  template <int kOutput>
  static __device__ __forceinline__ void narrow_outputs(const T (&output)[F::kOutputs], int index,
                                                        Outputs& outputs) {
    if constexpr (kOutput < kStored) {
      if constexpr (is_present(kFirstOutput + kOutput)) {
        constexpr ElementType kElement = kType[kFirstOutput + kOutput];
        set_bits<kElement>(outputs.raw[kOutput], index, Element<kElement>::narrow(output[kOutput]));
      }
      narrow_outputs<kOutput + 1>(output, index, outputs);
    }
  }

  // Rounds a value to the type of an operand.
  struct Round {
    template <int kOperand>
    __device__ __forceinline__ T to(T value) const {
      using E = Element<kType[kOperand]>;
      return E::widen(E::narrow(value));
    }
  };

  // `broadcast_at(i)` returns a pointer to the broadcast inputs of element i.
  // `keep_terms(i, output)` receives the outputs of the formula.
  template <class BroadcastAt, class KeepTerms>
  static __device__ __forceinline__ void evaluate(const F& formula, const Inputs& inputs,
                                                  const BroadcastAt& broadcast_at, Outputs& outputs,
                                                  const KeepTerms& keep_terms) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      T matrix[kMatrixInputs];
      T output[F::kOutputs];
      widen_inputs<0>(inputs, i, matrix);
      evaluate_formula(formula, matrix, broadcast_at(i), output, Round{});
      narrow_outputs<0>(output, i, outputs);
      keep_terms(i, output);
    }
  }
};

// The channel of a row if the channels lie along the rows.
__device__ __forceinline__ long long channel_of_row(long long row, long long num_channels) {
  // 32-bit division is several times faster, and nearly every call can use it.
  if (((row | num_channels) >> 32) == 0) {
    return static_cast<unsigned>(row) % static_cast<unsigned>(num_channels);
  }
  return row % num_channels;
}

}  // namespace dorajit::kernels
