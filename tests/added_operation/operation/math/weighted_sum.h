// out = alpha * x + beta * y
#pragma once

#include "math/qualifiers.h"

namespace dorajit::kernels {

template <class T>
struct WeightedSum {
  static constexpr int kMatrixInputs = 2;  // x, y
  static constexpr int kBroadcastInputs = 0;
  static constexpr int kOutputs = 1;  // out
  static constexpr int kSums = 0;

  T alpha;
  T beta;

  DORAJIT_FORMULA explicit WeightedSum(const double* scalars)
      : alpha(static_cast<T>(scalars[0])), beta(static_cast<T>(scalars[1])) {}

  DORAJIT_FORMULA void operator()(const T* matrix, const T*, T* output) const {
    const T first = alpha * matrix[0];
    const T second = beta * matrix[1];
    output[0] = first + second;
  }
};

}  // namespace dorajit::kernels
