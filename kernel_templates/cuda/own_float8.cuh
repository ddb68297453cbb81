// The 8-bit floating-point types of own kernels, which include this file as "dorajit/float8.cuh".
// They convert to float, and from float with one rounding to nearest even, beyond the largest
// number to that one; arithmetic on them is in float. PyTorch has them by the same names.
#pragma once

namespace dorajit {

namespace float8 {

__device__ __forceinline__ float of_half(unsigned bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(static_cast<unsigned short>(bits)));
  return value;
}

// The magnitude of a number of kMantissa bits, whose smallest normal number has the exponent
// kSmallest and whose largest number has the bits kLargest.
template <int kMantissa, int kSmallest, int kLargest>
__device__ __forceinline__ unsigned rounded(float value) {
  const unsigned word = __float_as_uint(value) & 0x7fffffffu;
  if (word > 0x7f800000u) return 0x7f;  // NaN
  constexpr unsigned kNormal = (127 + kSmallest) << 23;
  constexpr int kDropped = 23 - kMantissa;
  // Beside this number a float has exactly the steps of the subnormal numbers.
  constexpr unsigned kShift = (127 + kSmallest + kDropped) << 23;
  const unsigned subnormal =
      __float_as_uint(__uint_as_float(word) + __uint_as_float(kShift)) - kShift;
  const unsigned even = (word >> kDropped) & 1;
  const unsigned normal = ((word + (1u << (kDropped - 1)) - 1 + even) >> kDropped) -
                          (kNormal >> kDropped) + (1u << kMantissa);
  const unsigned bits = word < kNormal ? subnormal : normal;
  return bits < kLargest ? bits : kLargest;
}

}  // namespace float8

struct float8_e4m3fn {
  unsigned char bits;

  float8_e4m3fn() = default;
  __device__ __forceinline__ float8_e4m3fn(float value) {
#if __CUDA_ARCH__ >= 890
    unsigned short pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(value));
    bits = static_cast<unsigned char>(pair);
#else
    const unsigned sign = __float_as_uint(value) >> 31 << 7;
    bits = static_cast<unsigned char>(sign | float8::rounded<3, -6, 0x7e>(value));
#endif
  }
  __device__ __forceinline__ operator float() const {
    const unsigned magnitude = bits & 0x7fu;
    if (magnitude == 0x7fu) return __uint_as_float(0x7fffffffu);
    // A half has the same layout with another exponent.
    return float8::of_half((bits & 0x80u) << 8 | magnitude << 7) * 256.0f;
  }
};

struct float8_e5m2 {
  unsigned char bits;

  float8_e5m2() = default;
  __device__ __forceinline__ float8_e5m2(float value) {
#if __CUDA_ARCH__ >= 890
    unsigned short pair;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(value));
    bits = static_cast<unsigned char>(pair);
#else
    const unsigned sign = __float_as_uint(value) >> 31 << 7;
    bits = static_cast<unsigned char>(sign | float8::rounded<2, -14, 0x7b>(value));
#endif
  }
  __device__ __forceinline__ operator float() const {
    return float8::of_half(static_cast<unsigned>(bits) << 8);
  }
};

}  // namespace dorajit
