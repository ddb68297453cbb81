// The common parts of all weight_norm kernels: the operands, the outputs of a row from its sum, and
// the second stage, which adds the parts of a row.
#pragma once

#include "arguments.h"
#include "cuda/dependent_launch.cuh"
#include "cuda/elements.cuh"
#include "math/weight_norm.h"
#include "weight_norm_config.h"

namespace dorajit::kernels {

// Where factors that are split lie in the workspace.
struct FactorPairPlaces : FactorPairLayout {
  char* base;

  __device__ __forceinline__ int* exponents() const {
    return reinterpret_cast<int*>(base + FactorPairLayout::exponents);
  }
  __device__ __forceinline__ float* scales() const {
    return reinterpret_cast<float*>(base + FactorPairLayout::scales);
  }
  __device__ __forceinline__ unsigned short* lora_a() const {
    return reinterpret_cast<unsigned short*>(base + a);
  }
  __device__ __forceinline__ unsigned short* lora_b() const {
    return reinterpret_cast<unsigned short*>(base + b);
  }
};

template <ElementType... kTypes>
struct WeightNormOperands {
  static constexpr ElementType kType[] = {kTypes...};
  static_assert(sizeof...(kTypes) == kNormOperands, "one element type per operand");

  static constexpr bool is_double() {
    for (const ElementType type : kType) {
      if (type == ElementType::kFloat64) return true;
    }
    return false;
  }
  template <bool kDouble, class Wide, class Single>
  struct Choice {
    using Type = Single;
  };
  template <class Wide, class Single>
  struct Choice<true, Wide, Single> {
    using Type = Wide;
  };
  using T = typename Choice<is_double(), double, float>::Type;

  template <int kOperand>
  using Bits = typename Element<kType[kOperand]>::Bits;

  // The factors as the tensor cores multiply them: those of the call, or pairs in the workspace.
  static constexpr bool kHasPairs = has_factor_pairs(kType[kNormLoraA], kType[kNormLoraB]);
  static constexpr ElementType kFactorType = kHasPairs ? ElementType::kFloat16 : kType[kNormLoraA];

  static __device__ __forceinline__ FactorPairPlaces pairs(const KernelArguments& arguments) {
    const long long address = aligned_up(reinterpret_cast<long long>(arguments.workspace));
    return {factor_pair_layout(arguments.sizes[kNormRows], arguments.sizes[kNormColumns],
                               arguments.sizes[kNormRank]),
            reinterpret_cast<char*>(address)};
  }
  static __device__ __forceinline__ OperandArgument lora_a(const KernelArguments& arguments) {
    if constexpr (kHasPairs) {
      const FactorPairPlaces places = pairs(arguments);
      return {places.lora_a(), places.a_stride};
    } else {
      return arguments.operands[kNormLoraA];
    }
  }
  static __device__ __forceinline__ OperandArgument lora_b(const KernelArguments& arguments) {
    if constexpr (kHasPairs) {
      const FactorPairPlaces places = pairs(arguments);
      return {places.lora_b(), places.b_stride};
    } else {
      return arguments.operands[kNormLoraB];
    }
  }
  // 0 if B A has no effect.
  static __device__ __forceinline__ int factor_rank(const KernelArguments& arguments) {
    if (static_cast<float>(arguments.scalars[0]) == 0.0F) return 0;
    return static_cast<int>(arguments.sizes[kNormRank]) * (kHasPairs ? kFactorTerms : 1);
  }
  // What multiplies the products of that row before W is added.
  static __device__ __forceinline__ float scale_of_row(const KernelArguments& arguments,
                                                       float scale, long long row) {
    if constexpr (kHasPairs) {
      const bool has_products = scale != 0.0F && row < arguments.sizes[kNormRows];
      return has_products ? scale * pairs(arguments).scales()[row] : 0.0F;
    } else {
      return scale;
    }
  }
  // Returns when the stages that split the factors have finished.
  static __device__ __forceinline__ void wait_for_pairs() {
    if constexpr (kHasPairs) wait_for_first_stage();
  }

  template <int kOperand>
  static __device__ __forceinline__ void store(const KernelArguments& arguments, long long row,
                                               T value) {
    if constexpr (kType[kOperand] != ElementType::kAbsent) {
      static_cast<Bits<kOperand>*>(arguments.operands[kOperand].data)[row] =
          Element<kType[kOperand]>::narrow(value);
    }
  }

  // Computes the outputs of a row from the sum of its squares.
  static __device__ __forceinline__ void finish_row(const KernelArguments& arguments, long long row,
                                                    T square) {
    const T norm = square_root(square);
    store<kNormNorm>(arguments, row, norm);
    store<kNormSquare>(arguments, row, square);
    if constexpr (kType[kNormGain] != ElementType::kAbsent) {
      using Magnitude = Element<kType[kNormMagnitude]>;
      const T magnitude = Magnitude::widen(
          static_cast<const Bits<kNormMagnitude>*>(arguments.operands[kNormMagnitude].data)[row]);
      const T least = static_cast<T>(least_norm(kType[kNormMagnitude]));
      const T divisor = Magnitude::widen(Magnitude::narrow(divisor_of<T>(norm, least)));
      store<kNormGain>(arguments, row, magnitude / divisor);
      store<kNormDivisor>(arguments, row, divisor);
    }
  }

  // Stores the sum of part `part` for the second stage, or the outputs if the row has one part.
  static __device__ __forceinline__ void finish_part(const KernelArguments& arguments,
                                                     const NormParts& parts, long long part,
                                                     long long row, T square) {
    if (parts.count == 1) {
      finish_row(arguments, row, T(0) + square);
    } else {
      static_cast<T*>(arguments.workspace)[part * arguments.sizes[kNormRows] + row] = square;
    }
  }

  template <int kMaxParts>
  static __device__ __forceinline__ void run_second_stage(const KernelArguments& arguments) {
    static_assert(kMaxParts <= kMaxNormParts);
    const long long rows = arguments.sizes[kNormRows];
    const NormParts parts = norm_parts(arguments.sizes[kNormColumns], kMaxParts);
    const long long stride = static_cast<long long>(gridDim.x) * blockDim.x;
    wait_for_first_stage();
    for (long long row = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; row < rows;
         row += stride) {
      T sums[kMaxParts];
#pragma unroll
      for (int part = 0; part < kMaxParts; ++part) {
        sums[part] = part < parts.count
                         ? static_cast<const T*>(arguments.workspace)[part * rows + row]
                         : absent_term<T>();
      }
      finish_row(arguments, row, T(0) + sum_of_neighbours<kMaxParts>(sums));
    }
  }
};

}  // namespace dorajit::kernels

#define DORAJIT_WEIGHT_NORM_SECOND_STAGE(max_parts, ...)                                         \
  extern "C" __global__ void __launch_bounds__(dorajit::kernels::kNormFinishThreads)             \
      dorajit_finish(const __grid_constant__ dorajit::kernels::KernelArguments arguments) {      \
    dorajit::kernels::WeightNormOperands<__VA_ARGS__>::run_second_stage<(max_parts)>(arguments); \
  }
