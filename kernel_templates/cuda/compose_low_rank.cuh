// Selects the kernel of compose_low_rank for a config.
#pragma once

#include "cuda/compose_low_rank/mma.cuh"
#include "cuda/compose_low_rank/wgmma.cuh"

namespace dorajit::kernels {

template <LowRankConfig kConfig, ElementType... kTypes>
constexpr auto choose_compose_low_rank() {
  if constexpr (kConfig.instruction == LowRankInstruction::kWgmma) {
    return ComposeLowRankWgmma<kConfig, kTypes...>();
  } else {
    return ComposeLowRankMma<kConfig, kTypes...>();
  }
}

template <LowRankConfig kConfig, ElementType... kTypes>
using ComposeLowRank = decltype(choose_compose_low_rank<kConfig, kTypes...>());

}  // namespace dorajit::kernels

// The code that is generated per kernel. `config` is in parentheses.
#define DORAJIT_COMPOSE_LOW_RANK_KERNEL(config, ...)                                         \
  extern "C" __global__ void __launch_bounds__(                                              \
      dorajit::kernels::ComposeLowRank<config, __VA_ARGS__>::kThreads,                       \
      dorajit::kernels::ComposeLowRank<config, __VA_ARGS__>::kPrograms)                      \
      dorajit_kernel(const __grid_constant__ dorajit::kernels::KernelArguments arguments,    \
                     const __grid_constant__                                                 \
                         dorajit::kernels::ComposeLowRank<config, __VA_ARGS__>::Maps maps) { \
    dorajit::kernels::ComposeLowRank<config, __VA_ARGS__>::run(arguments, maps);             \
  }
