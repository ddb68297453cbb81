// Numbers that are scaled by a power of two and split into the sum of two float16, high and low.
// The sum keeps 22 bits of a number, and 39 bits relative to the largest number with that scale.
#pragma once

#include "cuda/matrix_fragments.cuh"

namespace dorajit::kernels {

inline constexpr unsigned kAbsoluteBits = 0x7fffffffu;
inline constexpr unsigned kInfinityBits = 0x7f800000u;

// The exponent of a group whose greatest magnitude has the bits `greatest` and is finite. Numbers
// below 2^-112 are as exact with the scale of 2^-112.
__device__ __forceinline__ int split_exponent(unsigned greatest) {
  const int exponent = static_cast<int>(greatest >> 23) - 127;
  return greatest == 0 ? 0 : exponent > -112 ? exponent : -112;
}

// 2^exponent, for exponents from -126 to 127.
__device__ __forceinline__ float power_of_two(int exponent) {
  return __uint_as_float(static_cast<unsigned>(exponent + 127) << 23);
}

// The scale of a group moves its greatest magnitude to between 2^14 and 2^15.
inline constexpr int kSplitTop = 14;

__device__ __forceinline__ float split_scale(int exponent) {
  return power_of_two(kSplitTop - exponent);
}

__device__ __forceinline__ void widen_pair(unsigned pair, float& low, float& high) {
  asm("{\n"
      ".reg .b16 low, high;\n"
      "mov.b32 {low, high}, %2;\n"
      "cvt.f32.f16 %0, low;\n"
      "cvt.f32.f16 %1, high;\n"
      "}"
      : "=f"(low), "=f"(high)
      : "r"(pair));
}

// Splits two neighbouring scaled numbers into pairs of float16.
__device__ __forceinline__ void split_pair(float first, float second, unsigned& high,
                                           unsigned& low) {
  high = narrow_pair<ElementType::kFloat16>(first, second);
  float first_high;
  float second_high;
  widen_pair(high, first_high, second_high);
  low = narrow_pair<ElementType::kFloat16>(first - first_high, second - second_high);
}

}  // namespace dorajit::kernels
