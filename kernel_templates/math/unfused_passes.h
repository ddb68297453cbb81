// The four passes over memory that a framework makes for one composition, one formula per pass.
// Benchmarks compare `compose` with them; the library never serves a call with them.
#pragma once

#include "math/qualifiers.h"

namespace dorajit::kernels {

// y = s * x
template <class T>
struct ScaleByScalar {
  static constexpr int kMatrixInputs = 1;
  static constexpr int kBroadcastInputs = 0;
  static constexpr int kOutputs = 1;
  static constexpr int kSums = 0;

  T scale;

  DORAJIT_FORMULA explicit ScaleByScalar(const double* scalars)
      : scale(static_cast<T>(scalars[0])) {}

  DORAJIT_FORMULA void operator()(const T* matrix, const T*, T* output) const {
    output[0] = scale * matrix[0];
  }
};

// y = g * x
template <class T>
struct ScaleByGain {
  static constexpr int kMatrixInputs = 1;
  static constexpr int kBroadcastInputs = 1;
  static constexpr int kOutputs = 1;
  static constexpr int kSums = 0;

  DORAJIT_FORMULA explicit ScaleByGain(const double*) {}

  DORAJIT_FORMULA void operator()(const T* matrix, const T* broadcast, T* output) const {
    output[0] = broadcast[0] * matrix[0];
  }
};

// y = (g - 1) * x
template <class T>
struct ScaleByGainMinusOne {
  static constexpr int kMatrixInputs = 1;
  static constexpr int kBroadcastInputs = 1;
  static constexpr int kOutputs = 1;
  static constexpr int kSums = 0;

  DORAJIT_FORMULA explicit ScaleByGainMinusOne(const double*) {}

  DORAJIT_FORMULA void operator()(const T* matrix, const T* broadcast, T* output) const {
    output[0] = (broadcast[0] - T(1)) * matrix[0];
  }
};

// y = a + b
template <class T>
struct Add {
  static constexpr int kMatrixInputs = 2;
  static constexpr int kBroadcastInputs = 0;
  static constexpr int kOutputs = 1;
  static constexpr int kSums = 0;

  DORAJIT_FORMULA explicit Add(const double*) {}

  DORAJIT_FORMULA void operator()(const T* matrix, const T*, T* output) const {
    output[0] = matrix[0] + matrix[1];
  }
};

}  // namespace dorajit::kernels
