// out = alpha * (x @ y) + beta * bias in plain loops; y is stored column by column.
#pragma once

#include "arguments.h"
#include "cpu/elements.h"

namespace dorajit::kernels {

struct TileConfig {
  int tile;   // columns of a program
  int warps;  // workers of a launch
};

template <TileConfig kConfig, ElementType kX, ElementType kY, ElementType kBias, ElementType kOut>
struct TileProducts {
  static constexpr int kRowsOfX = 0, kInner = 1, kColsOfY = 2;

  template <ElementType kType>
  static float load(const OperandArgument& operand, long long row, long long col) {
    if constexpr (kType == ElementType::kAbsent) {
      return 0;
    } else {
      const auto* data = static_cast<const typename Element<kType>::Storage*>(operand.data);
      return Element<kType>::widen(data[row * operand.row_stride + col]);
    }
  }

  static long long tiles(const KernelArguments& arguments) {
    return (arguments.sizes[kColsOfY] + kConfig.tile - 1) / kConfig.tile;
  }
  static long long end_of(const KernelArguments& arguments, long long tile) {
    const long long end = (tile + 1) * kConfig.tile;
    return end < arguments.sizes[kColsOfY] ? end : arguments.sizes[kColsOfY];
  }

  static void pack(const KernelArguments& arguments, long long first, long long last) {
    auto* packed = static_cast<float*>(arguments.workspace);
    const long long inner = arguments.sizes[kInner];
    for (long long tile = first; tile < last; ++tile) {
      for (long long col = tile * kConfig.tile; col < end_of(arguments, tile); ++col) {
        for (long long k = 0; k < inner; ++k) {
          packed[col * inner + k] = load<kY>(arguments.operands[1], k, col);
        }
      }
    }
  }

  static void multiply(const KernelArguments& arguments, long long first, long long last) {
    const auto* packed = static_cast<const float*>(arguments.workspace);
    const long long inner = arguments.sizes[kInner];
    const auto alpha = static_cast<float>(arguments.scalars[0]);
    const auto beta = static_cast<float>(arguments.scalars[1]);
    const OperandArgument& out = arguments.operands[3];
    auto* stored = static_cast<typename Element<kOut>::Storage*>(out.data);
    for (long long program = first; program < last; ++program) {
      const long long row = program / tiles(arguments);
      const long long tile = program % tiles(arguments);
      const float added = beta * load<kBias>(arguments.operands[2], 0, row);
      for (long long col = tile * kConfig.tile; col < end_of(arguments, tile); ++col) {
        float sum = 0;
        for (long long k = 0; k < inner; ++k) {
          const float product = load<kX>(arguments.operands[0], row, k) * packed[col * inner + k];
          sum = sum + product;
        }
        stored[row * out.row_stride + col] = Element<kOut>::narrow(alpha * sum + added);
      }
    }
  }
};

}  // namespace dorajit::kernels

#define DORAJIT_TILE_PRODUCTS_KERNEL(config, ...)                                            \
  extern "C" __attribute__((visibility("default"))) void dorajit_kernel(                     \
      const dorajit::kernels::KernelArguments* arguments, long long first, long long last) { \
    dorajit::kernels::TileProducts<config, __VA_ARGS__>::pack(*arguments, first, last);      \
  }                                                                                          \
  extern "C" __attribute__((visibility("default"))) void dorajit_finish(                     \
      const dorajit::kernels::KernelArguments* arguments, long long first, long long last) { \
    dorajit::kernels::TileProducts<config, __VA_ARGS__>::multiply(*arguments, first, last);  \
  }
