// What a layer gives: its base result plus the composition over that result (the paper, appendix A,
// whose delta is added to the base result by the caller):
//
//     out = result + ((g - 1) * result + g * (s * lora)),    inner = s * lora + result
//
// The inner sum in exactly the order of compose.h.
#pragma once

#include "math/compose_inner.h"

namespace dorajit::kernels {

template <class T>
struct ComposeResidual {
  static constexpr int kMatrixInputs = 2;     // lora, result
  static constexpr int kBroadcastInputs = 1;  // gain
  static constexpr int kOutputs = 2;          // out, inner
  static constexpr int kSums = 0;

  ComposeInner<T> compose;

  DORAJIT_FORMULA explicit ComposeResidual(const double* scalars) : compose(scalars) {}

  DORAJIT_FORMULA void operator()(const T* matrix, const T* broadcast, T* output) const {
    compose(matrix, broadcast, output);
    output[0] = matrix[1] + output[0];
  }
};

}  // namespace dorajit::kernels
