// The same on a GPU, a thread for each column of a program.
#pragma once

#include "arguments.h"
#include "cuda/elements.cuh"

namespace dorajit::kernels {

struct TileConfig {
  int tile;   // columns of a program
  int warps;  // of a program
};

template <TileConfig kConfig, ElementType kX, ElementType kY, ElementType kBias, ElementType kOut>
struct TileProducts {
  static constexpr int kRowsOfX = 0, kInner = 1, kColsOfY = 2;

  template <ElementType kType>
  static __device__ float load(const OperandArgument& operand, long long row, long long col) {
    if constexpr (kType == ElementType::kAbsent) {
      return 0;
    } else {
      const auto* data = static_cast<const typename Element<kType>::Bits*>(operand.data);
      return Element<kType>::widen(data[row * operand.row_stride + col]);
    }
  }

  static __device__ long long tiles(const KernelArguments& arguments) {
    return (arguments.sizes[kColsOfY] + kConfig.tile - 1) / kConfig.tile;
  }
  static __device__ long long end_of(const KernelArguments& arguments, long long tile) {
    const long long end = (tile + 1) * kConfig.tile;
    return end < arguments.sizes[kColsOfY] ? end : arguments.sizes[kColsOfY];
  }

  static __device__ void pack(const KernelArguments& arguments) {
    auto* packed = static_cast<float*>(arguments.workspace);
    const long long inner = arguments.sizes[kInner];
    for (long long tile = blockIdx.x; tile < tiles(arguments); tile += gridDim.x) {
      for (long long col = tile * kConfig.tile; col < end_of(arguments, tile); ++col) {
        for (long long k = threadIdx.x; k < inner; k += blockDim.x) {
          packed[col * inner + k] = load<kY>(arguments.operands[1], k, col);
        }
      }
    }
  }

  static __device__ void multiply(const KernelArguments& arguments, float* sums) {
    const auto* packed = static_cast<const float*>(arguments.workspace);
    const long long inner = arguments.sizes[kInner];
    const auto alpha = static_cast<float>(arguments.scalars[0]);
    const auto beta = static_cast<float>(arguments.scalars[1]);
    const OperandArgument& out = arguments.operands[3];
    auto* stored = static_cast<typename Element<kOut>::Bits*>(out.data);
    for (long long row = blockIdx.y; row < arguments.sizes[kRowsOfX]; row += gridDim.y) {
      const float added = beta * load<kBias>(arguments.operands[2], 0, row);
      for (long long tile = blockIdx.x; tile < tiles(arguments); tile += gridDim.x) {
        const long long first = tile * kConfig.tile;
        for (long long col = first + threadIdx.x; col < end_of(arguments, tile);
             col += blockDim.x) {
          float& sum = sums[col - first];
          sum = 0;
          for (long long k = 0; k < inner; ++k) {
            const float product = load<kX>(arguments.operands[0], row, k) * packed[col * inner + k];
            sum = sum + product;
          }
          stored[row * out.row_stride + col] = Element<kOut>::narrow(alpha * sum + added);
        }
      }
    }
  }
};

}  // namespace dorajit::kernels

#define DORAJIT_TILE_PRODUCTS_KERNEL(config, ...)                                               \
  extern "C" __global__ void __launch_bounds__(config.warps* dorajit::kernels::kThreadsPerWarp) \
      dorajit_kernel(const __grid_constant__ dorajit::kernels::KernelArguments arguments) {     \
    dorajit::kernels::TileProducts<config, __VA_ARGS__>::pack(arguments);                       \
  }                                                                                             \
  extern "C" __global__ void __launch_bounds__(config.warps* dorajit::kernels::kThreadsPerWarp) \
      dorajit_finish(const __grid_constant__ dorajit::kernels::KernelArguments arguments) {     \
    extern __shared__ float sums[];                                                             \
    dorajit::kernels::TileProducts<config, __VA_ARGS__>::multiply(arguments, sums);             \
  }
