// The composition and the value that its backward pass needs (the paper, section 4, tier 1):
//
//     out = (g - 1) * base + g * (s * lora),    inner = s * lora + base
//
// `out` is evaluated in exactly the order of compose.h, so that both operations give the same bits.
#pragma once

#include "math/compose.h"

namespace dorajit::kernels {

template <class T>
struct ComposeInner {
  static constexpr int kMatrixInputs = 2;     // lora, base
  static constexpr int kBroadcastInputs = 1;  // gain
  static constexpr int kOutputs = 2;          // out, inner
  static constexpr int kSums = 0;

  Compose<T> compose;

  DORAJIT_FORMULA explicit ComposeInner(const double* scalars) : compose(scalars) {}

  DORAJIT_FORMULA void operator()(const T* matrix, const T* broadcast, T* output) const {
    compose(matrix, broadcast, output);
    const T scaled_lora = compose.scale * matrix[0];
    output[1] = scaled_lora + matrix[1];
  }
};

}  // namespace dorajit::kernels
