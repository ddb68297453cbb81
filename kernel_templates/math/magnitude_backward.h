// The gradients of a layer, whose gain is g = magnitude / divisor (the paper, section 3.2):
//
//     d_lora = (g * s) * d_out,    d_result = g * d_out,
//     d_magnitude = (sum of inner * d_out) / divisor
//
// The last output is one term of a channel's sum.
#pragma once

#include "math/residual_backward.h"

namespace dorajit::kernels {

template <class T>
struct MagnitudeBackward {
  static constexpr int kMatrixInputs = 2;     // d_out, inner
  static constexpr int kBroadcastInputs = 2;  // gain, divisor
  static constexpr int kOutputs = 3;          // d_lora, d_result, d_magnitude
  static constexpr int kSums = 1;             // the last of the outputs

  ResidualBackward<T> backward;

  DORAJIT_FORMULA explicit MagnitudeBackward(const double* scalars) : backward(scalars) {}

  DORAJIT_FORMULA void operator()(const T* matrix, const T* broadcast, T* output) const {
    backward(matrix, broadcast, output);
  }

  DORAJIT_FORMULA void finish(T* sum, const T* broadcast) const { sum[0] = sum[0] / broadcast[1]; }
};

}  // namespace dorajit::kernels
