// Selects the kernel of weight_norm for a config.
#pragma once

#include "cuda/weight_norm/factor_pairs.cuh"
#include "cuda/weight_norm/mma.cuh"
#include "cuda/weight_norm/scalar.cuh"
#include "cuda/weight_norm/wgmma.cuh"

namespace dorajit::kernels {

// In the order of templates/weight_norm_launch.cc.
struct NormMaps {
  TensorMap weight;
  TensorMap lora_a;
  TensorMap lora_b;
};

template <WeightNormConfig kConfig, ElementType... kTypes>
constexpr auto choose_weight_norm() {
  if constexpr (kConfig.instruction == NormInstruction::kWgmma || wgmma_streams(kConfig)) {
    return WeightNormWgmma<kConfig, kTypes...>();
  } else if constexpr (kConfig.instruction == NormInstruction::kMma) {
    return WeightNormMma<kConfig, kTypes...>();
  } else {
    return WeightNormScalar<kConfig, kTypes...>();
  }
}

template <WeightNormConfig kConfig, ElementType... kTypes>
using WeightNormKernel = decltype(choose_weight_norm<kConfig, kTypes...>());

}  // namespace dorajit::kernels

// The code that is generated per kernel. `config` is in parentheses.
#define DORAJIT_WEIGHT_NORM_KERNEL(config, ...)                                             \
  extern "C" __global__ void __launch_bounds__(                                             \
      dorajit::kernels::WeightNormKernel<config, __VA_ARGS__>::kThreads, 1)                 \
      dorajit_kernel(const __grid_constant__ dorajit::kernels::KernelArguments arguments,   \
                     const __grid_constant__ dorajit::kernels::NormMaps maps) {             \
    dorajit::kernels::WeightNormKernel<config, __VA_ARGS__>::run(arguments, maps.weight,    \
                                                                 maps.lora_a, maps.lora_b); \
  }                                                                                         \
  DORAJIT_WEIGHT_NORM_SECOND_STAGE(config.max_parts, __VA_ARGS__)                           \
  DORAJIT_FACTOR_PAIR_STAGES(__VA_ARGS__)
