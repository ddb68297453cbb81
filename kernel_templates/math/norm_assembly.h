// The row norms of W + s B A from their three factored terms (the paper, section 2 and appendix
// C.3), in the order in which PyTorch's four kernels evaluate them:
//
//     norm = sqrt(max((w + 2s * cross) + s^2 * ba, 0))
//
// 2s and s^2 are computed in double and rounded once. The maximum propagates NaN.
#pragma once

#include "math/qualifiers.h"
#include "math/square_root.h"

namespace dorajit::kernels {

template <class T>
struct NormAssembly {
  static constexpr int kMatrixInputs = 3;  // w_norm_sq, cross, ba_norm_sq
  static constexpr int kBroadcastInputs = 0;
  static constexpr int kOutputs = 1;  // norm
  static constexpr int kSums = 0;

  T two_s;
  T s2;

  DORAJIT_FORMULA explicit NormAssembly(const double* scalars)
      : two_s(static_cast<T>(2 * scalars[0])), s2(static_cast<T>(scalars[0] * scalars[0])) {}

  DORAJIT_FORMULA void operator()(const T* matrix, const T*, T* output) const {
    const T cross_part = two_s * matrix[1];
    const T partial = matrix[0] + cross_part;
    const T ba_part = s2 * matrix[2];
    const T norm_squared = partial + ba_part;
    output[0] = square_root(norm_squared < T(0) ? T(0) : norm_squared);
  }
};

}  // namespace dorajit::kernels
