// a * b + c, rounded once, on host and device.
#pragma once

#include "math/qualifiers.h"

namespace dorajit::kernels {

#ifdef __CUDA_ARCH__
DORAJIT_FORMULA float fused_multiply_add(float a, float b, float c) { return __fmaf_rn(a, b, c); }
DORAJIT_FORMULA double fused_multiply_add(double a, double b, double c) {
  return __fma_rn(a, b, c);
}
#else
DORAJIT_FORMULA float fused_multiply_add(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}
DORAJIT_FORMULA double fused_multiply_add(double a, double b, double c) {
  return __builtin_fma(a, b, c);
}
#endif

}  // namespace dorajit::kernels
