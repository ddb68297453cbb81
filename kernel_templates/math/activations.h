// The activations of gated MLPs and their derivatives, with the same bits on host and device.
#pragma once

#include "math/exponential.h"

namespace dorajit::kernels {

// x / (1 + e^-x)
struct Silu {
  template <class T>
  static DORAJIT_FORMULA T value(T x) {
    return x * sigmoid(x);
  }

  template <class T>
  static DORAJIT_FORMULA T derivative(T x) {
    const T share = sigmoid(x);
    return share * fused_multiply_add(x, T(1) - share, T(1));
  }
};

// x / 2 (1 + tanh z) with z = sqrt(2 / pi) (x + 0.044715 x^3), which is x / (1 + e^-2z).
struct GeluTanh {
  static constexpr double kOfX = 1.5957691216057308;  // 2 sqrt(2 / pi)
  static constexpr double kOfCube = 0.044715;

  template <class T>
  static DORAJIT_FORMULA T share(T x) {
    return sigmoid(x * fused_multiply_add(T(kOfX * kOfCube), x * x, T(kOfX)));
  }

  template <class T>
  static DORAJIT_FORMULA T value(T x) {
    return x * share(x);
  }

  template <class T>
  static DORAJIT_FORMULA T derivative(T x) {
    const T of_x = share(x);
    // Where it is 0 or 1, x times the derivative of 2 z may be infinite.
    const T rest = of_x * (T(1) - of_x);
    const T slope = x * fused_multiply_add(T(3 * kOfX * kOfCube), x * x, T(kOfX));
    return rest == T(0) && x == x ? of_x : fused_multiply_add(rest, slope, of_x);
  }
};

// x times the normal distribution's cumulative function: x / 2 (1 + erf(x / sqrt 2)).
struct Gelu {
  // e^(t^2) erfc(t) for t >= 0, as 1 / (1 + 2 t) times a Chebyshev series in (t - 15/4) / (t +
  // 15/4): within 2e-8 in float, 3e-18 in double before rounding.
  template <class T>
  static DORAJIT_FORMULA T scaled_erfc(T t) {
    constexpr double kSeries[] = {
        1.177578934567401754,      -0.004590054580646477331,  -0.08424913336651791558,
        0.0592099399981918905,     -0.02665866843530575228,   0.009074997670705265094,
        -0.002413163540417608191,  0.0004907758365258086323,  -0.00006916973302501206367,
        4.139027986073010168e-6,   7.740383066198490669e-7,   -2.188640104923439566e-7,
        1.076499946567091038e-8,   4.521959811218286898e-9,   -7.754400208831351107e-10,
        -6.318088340886684515e-11, 2.86879501093067e-11,      1.945586854577793864e-13,
        -9.654696748433504424e-13, 3.252548148136348921e-14,  3.347811948275279142e-14,
        -1.864562878242870572e-15, -1.250795046938718091e-15, 7.418231959528879034e-17,
        5.068131210430141112e-17,  -2.236643231501039295e-18};
    constexpr int kTerms = sizeof(T) == 4 ? 12 : 26;
    const T y = t > T(1e30) ? T(1) : (t - T(3.75)) * reciprocal(t + T(3.75));
    const T twice = T(2) * y;
    T next = T(0);
    T sum = T(kSeries[kTerms - 1]);
    DORAJIT_UNROLL
    for (int i = kTerms - 2; i > 0; --i) {
      const T before = sum;
      sum = fused_multiply_add(twice, sum, T(kSeries[i]) - next);
      next = before;
    }
    // Beyond 1e30 the density, the other factor, is 0.
    const T share = t > T(1e30) ? T(0) : reciprocal(T(1) + T(2) * t);
    return fused_multiply_add(y, sum, T(kSeries[0]) - next) * share;
  }

  // The density of the normal distribution, times sqrt(2 pi).
  template <class T>
  static DORAJIT_FORMULA T bell(T x) {
    const T exponent = T(-0.5) * (x * x);
    return exponent < -Exponential<T>::kMost ? T(0) : exponential(exponent);
  }

  template <class T>
  static DORAJIT_FORMULA T cumulative(T x, T bell_of_x) {
    const T positive = x < T(0) ? -x : x;
    const T tail = T(0.5) * (bell_of_x * scaled_erfc(positive * T(0.70710678118654752)));
    return x < T(0) ? tail : T(1) - tail;
  }

  template <class T>
  static DORAJIT_FORMULA T value(T x) {
    return x * cumulative(x, bell(x));
  }

  template <class T>
  static DORAJIT_FORMULA T derivative(T x) {
    const T of_x = bell(x);
    // x may be infinite where the density is 0.
    const T slope = of_x == T(0) ? T(0) : x * of_x;
    return fused_multiply_add(T(0.39894228040143268), slope, cumulative(x, of_x));
  }
};

}  // namespace dorajit::kernels
