// The output of a layer: its base result plus the composition over that result without its optional
// bias (the paper, appendix A, where the caller adds the delta to the base result):
//
//     base = result - bias
//     out = result + ((g - 1) * base + g * (s * lora)),    inner = s * lora + base
//
// The inner sum is evaluated in exactly the order of compose.h. Without a bias, the formula
// subtracts zero, which changes no bit of the result.
#pragma once

#include "math/compose_inner.h"

namespace dorajit::kernels {

template <class T>
struct ComposeResidual {
  static constexpr int kMatrixInputs = 2;     // lora, result
  static constexpr int kBroadcastInputs = 2;  // gain, bias
  static constexpr int kOutputs = 2;          // out, inner
  static constexpr int kSums = 0;

  ComposeInner<T> compose;

  DORAJIT_FORMULA explicit ComposeResidual(const double* scalars) : compose(scalars) {}

  DORAJIT_FORMULA void operator()(const T* matrix, const T* broadcast, T* output) const {
    const T result = matrix[1];
    const T operands[] = {matrix[0], result - broadcast[1]};
    compose(operands, broadcast, output);
    output[0] = result + output[0];
  }
};

}  // namespace dorajit::kernels
