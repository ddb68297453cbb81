// The correctly rounded square root, on host and device.
#pragma once

#include "math/qualifiers.h"

namespace dorajit::kernels {

#ifdef __CUDA_ARCH__
DORAJIT_FORMULA float square_root(float value) { return __fsqrt_rn(value); }
DORAJIT_FORMULA double square_root(double value) { return __dsqrt_rn(value); }
#else
DORAJIT_FORMULA float square_root(float value) { return __builtin_sqrtf(value); }
DORAJIT_FORMULA double square_root(double value) { return __builtin_sqrt(value); }
#endif

}  // namespace dorajit::kernels
