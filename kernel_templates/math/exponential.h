// e^x and 1 / (1 + e^-x) with the same bits on host and device.
#pragma once

#include "math/fused_multiply_add.h"

namespace dorajit::kernels {

// What e^x is computed with: n = round(x / ln 2), r = x - n ln 2, and e^x = 2^n p(r). Adding kShift
// rounds to an integer and leaves the biased exponent of 2^n in the lowest bits.
template <class T>
struct Exponential;

template <>
struct Exponential<float> {
  static constexpr float kMost = 87.0f;  // for |x| up to it, neither e^x nor e^-x is subnormal
  static constexpr float kPerLn2 = 1.44269504f;
  static constexpr float kLn2 = 0.693359375f;  // has zeros at its end: n kLn2 is exact
  static constexpr float kLn2Rest = -2.12194440e-4f;
  static constexpr float kShift = 12582912.0f + 127.0f;
  // Interpolates (e^r - 1 - r) / r^2 at the Chebyshev nodes of |r| <= ln 2 / 2, then r and 1: the
  // result is within 0.65 units in the last place.
  static constexpr int kDegree = 6;
  static constexpr float kPower[kDegree + 1] = {
      1.0f, 1.0f, 0.5f, 0.166665763f, 0.0416665561f, 0.00836317893f, 0.00139261840f};

  static DORAJIT_FORMULA float power_of_two(float shifted) {
#ifdef __CUDA_ARCH__
    return __uint_as_float(__float_as_uint(shifted) << 23);
#else
    return __builtin_bit_cast(float, __builtin_bit_cast(unsigned, shifted) << 23);
#endif
  }
};

template <>
struct Exponential<double> {
  static constexpr double kMost = 708.0;
  static constexpr double kPerLn2 = 1.4426950408889634;
  static constexpr double kLn2 = 0x1.62e42fefa38p-1;
  static constexpr double kLn2Rest = 0x1.ef35793c7673p-45;
  static constexpr double kShift = 6755399441055744.0 + 1023.0;
  // The Taylor series.
  static constexpr int kDegree = 13;
  static constexpr double kPower[kDegree + 1] = {1.0,
                                                 1.0,
                                                 1.0 / 2,
                                                 1.0 / 6,
                                                 1.0 / 24,
                                                 1.0 / 120,
                                                 1.0 / 720,
                                                 1.0 / 5040,
                                                 1.0 / 40320,
                                                 1.0 / 362880,
                                                 1.0 / 3628800,
                                                 1.0 / 39916800,
                                                 1.0 / 479001600,
                                                 1.0 / 6227020800};

  static DORAJIT_FORMULA double power_of_two(double shifted) {
#ifdef __CUDA_ARCH__
    return __longlong_as_double(__double_as_longlong(shifted) << 52);
#else
    return __builtin_bit_cast(double, __builtin_bit_cast(unsigned long long, shifted) << 52);
#endif
  }
};

// For |x| <= Exponential<T>::kMost; otherwise any number.
template <class T>
DORAJIT_FORMULA T exponential(T x) {
  using E = Exponential<T>;
  const T shifted = fused_multiply_add(x, E::kPerLn2, E::kShift);
  const T n = shifted - E::kShift;
  const T r = fused_multiply_add(-n, E::kLn2Rest, fused_multiply_add(-n, E::kLn2, x));
  T sum = E::kPower[E::kDegree];
  DORAJIT_UNROLL
  for (int i = E::kDegree - 1; i >= 0; --i) sum = fused_multiply_add(sum, r, E::kPower[i]);
  return sum * E::power_of_two(shifted);
}

// 1 / d, correctly rounded, for 1 <= d < 2^126; otherwise any number.
DORAJIT_FORMULA float reciprocal(float d) {
#ifdef __CUDA_ARCH__
  // A step of Newton's method rounds the device's approximation correctly, as in its own division,
  // which also tests for other exponents.
  float near;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(near) : "f"(d));
  return fused_multiply_add(near, fused_multiply_add(-d, near, 1.0f), near);
#else
  return 1.0f / d;
#endif
}
DORAJIT_FORMULA double reciprocal(double d) { return 1.0 / d; }

// 1 / (1 + e^-x); 0 where it is less than e^-kMost, about 1e-38 or 1e-308. 1 for NaN.
template <class T>
DORAJIT_FORMULA T sigmoid(T x) {
  constexpr T kMost = Exponential<T>::kMost;
  const T bounded = x < kMost ? -x : -kMost;
  const T made = reciprocal(T(1) + exponential(bounded));
  return x < -kMost ? T(0) : made;
}

}  // namespace dorajit::kernels
