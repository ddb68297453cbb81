// The DoRA composition in its numerically stable form (the paper, sections 3.1 and appendix C.1):
//
//     out = (g - 1) * base + g * (s * lora)
//
// evaluated in exactly this order, with each operation rounded once. Translation units that include
// this header are compiled without contraction, so no product is fused into the sum.
#pragma once

#include "math/qualifiers.h"

namespace dorajit::kernels {

template <class T>
struct Compose {
  static constexpr int kMatrixInputs = 2;     // lora, base
  static constexpr int kBroadcastInputs = 1;  // gain
  static constexpr int kOutputs = 1;          // out
  static constexpr int kSums = 0;

  T scale;

  DORAJIT_FORMULA explicit Compose(const double* scalars) : scale(static_cast<T>(scalars[0])) {}

  DORAJIT_FORMULA void operator()(const T* matrix, const T* broadcast, T* output) const {
    const T lora = matrix[0];
    const T base = matrix[1];
    const T gain = broadcast[0];
    const T scaled_lora = scale * lora;
    output[0] = (gain - T(1)) * base + gain * scaled_lora;
  }
};

}  // namespace dorajit::kernels
