// Broadcast inputs in registers. They are loaded early and widened late, so that their loads and
// the loads of the first rows are in flight together. An absent input is zero.
#pragma once

#include "cuda/operands.cuh"

namespace dorajit::kernels {

// Per column: the values of kVectors vectors of columns, shared by all rows.
template <class Op, int kVectors>
struct ColumnValues {
  using T = typename Op::T;
  static constexpr int kInputs = Op::kBroadcastInputs;

  typename Op::Vector raw[kVectors][kInputs + 1];
  T value[kVectors][Op::kWidth][kInputs + 1];

  // `col` and `remaining` refer to vector 0; the vectors are `stride` columns apart.
  template <int kInput = 0>
  __device__ __forceinline__ void load(const KernelArguments& arguments, long long col,
                                       long long stride, long long remaining) {
    if constexpr (kInput < kInputs) {
      constexpr int kOperand = Op::kMatrixInputs + kInput;
      if constexpr (Op::is_present(kOperand)) {
#pragma unroll
        for (int v = 0; v < kVectors; ++v) {
          load_vector<Op::kType[kOperand], Op::kWidth, false>(
              arguments.operands[kOperand].data, col + v * stride, remaining - v * stride,
              raw[v][kInput]);
        }
      }
      load<kInput + 1>(arguments, col, stride, remaining);
    }
  }

  template <int kInput = 0>
  __device__ __forceinline__ void widen() {
    if constexpr (kInput < kInputs) {
      constexpr int kOperand = Op::kMatrixInputs + kInput;
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
#pragma unroll
        for (int i = 0; i < Op::kWidth; ++i) {
          if constexpr (Op::is_present(kOperand)) {
            constexpr ElementType kElement = Op::kType[kOperand];
            value[v][i][kInput] = Element<kElement>::widen(get_bits<kElement>(raw[v][kInput], i));
          } else {
            value[v][i][kInput] = T(0);
          }
        }
      }
      widen<kInput + 1>();
    }
  }
};

// Per row: the values of one channel.
template <class Op>
struct RowValues {
  using T = typename Op::T;
  static constexpr int kInputs = Op::kBroadcastInputs;

  T value[kInputs + 1];

  template <int kInput = 0>
  __device__ __forceinline__ void load(const KernelArguments& arguments, long long channel) {
    if constexpr (kInput < kInputs) {
      constexpr int kOperand = Op::kMatrixInputs + kInput;
      if constexpr (Op::is_present(kOperand)) {
        constexpr ElementType kElement = Op::kType[kOperand];
        using Bits = typename Element<kElement>::Bits;
        value[kInput] = Element<kElement>::widen(
            static_cast<const Bits*>(arguments.operands[kOperand].data)[channel]);
      } else {
        value[kInput] = T(0);
      }
      load<kInput + 1>(arguments, channel);
    }
  }
};

}  // namespace dorajit::kernels
