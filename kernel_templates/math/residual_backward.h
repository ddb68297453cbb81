// The gradients of compose_residual.h:
//
//     d_lora = (g * s) * d_out,    d_result = g * d_out,    d_gain = sum of inner * d_out
//
// The last output is one term of a channel's sum.
#pragma once

#include "math/backward.h"

namespace dorajit::kernels {

template <class T>
struct ResidualBackward {
  static constexpr int kMatrixInputs = 2;     // d_out, inner
  static constexpr int kBroadcastInputs = 1;  // gain
  static constexpr int kOutputs = 3;          // d_lora, d_result, d_gain
  static constexpr int kSums = 1;             // the last of the outputs

  Backward<T> backward;

  DORAJIT_FORMULA explicit ResidualBackward(const double* scalars) : backward(scalars) {}

  DORAJIT_FORMULA void operator()(const T* matrix, const T* broadcast, T* output) const {
    backward(matrix, broadcast, output);
    output[1] = broadcast[0] * matrix[0];
  }
};

}  // namespace dorajit::kernels
