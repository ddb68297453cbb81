// out = gain * (scale * x) + residual
#pragma once

#include "math/qualifiers.h"

namespace dorajit::kernels {

template <class T>
struct ScaledResidual {
  static constexpr int kMatrixInputs = 2;     // x, residual
  static constexpr int kBroadcastInputs = 1;  // gain
  static constexpr int kOutputs = 1;          // out
  static constexpr int kSums = 0;

  T scale;

  DORAJIT_FORMULA explicit ScaledResidual(const double* scalars)
      : scale(static_cast<T>(scalars[0])) {}

  DORAJIT_FORMULA void operator()(const T* matrix, const T* broadcast, T* output) const {
    const T scaled = scale * matrix[0];
    output[0] = broadcast[0] * scaled + matrix[1];
  }
};

}  // namespace dorajit::kernels
