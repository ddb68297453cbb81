// The gradients of the composition (the paper, section 3.2 and appendix C.2):
//
//     d_lora = (g * s) * d_out,    d_base = (g - 1) * d_out,    d_gain = sum of inner * d_out
//
// The last output is one term of a channel's sum.
#pragma once

#include "math/qualifiers.h"

namespace dorajit::kernels {

template <class T>
struct Backward {
  static constexpr int kMatrixInputs = 2;     // d_out, inner
  static constexpr int kBroadcastInputs = 1;  // gain
  static constexpr int kOutputs = 3;          // d_lora, d_base, d_gain
  static constexpr int kSums = 1;             // the last of the outputs

  T scale;

  DORAJIT_FORMULA explicit Backward(const double* scalars) : scale(static_cast<T>(scalars[0])) {}

  DORAJIT_FORMULA void operator()(const T* matrix, const T* broadcast, T* output) const {
    const T d_out = matrix[0];
    const T inner = matrix[1];
    const T gain = broadcast[0];
    output[0] = (gain * scale) * d_out;
    output[1] = (gain - T(1)) * d_out;
    output[2] = inner * d_out;
  }
};

}  // namespace dorajit::kernels
