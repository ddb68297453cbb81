// Numbers as the sum of two float16, high and low, of the number scaled by a power of two: 22 bits,
// and 39 of the largest number of a group that shares the scale.
#pragma once

namespace dorajit::kernels {

inline constexpr unsigned kAbsoluteBits = 0x7fffffffu;
inline constexpr unsigned kInfinityBits = 0x7f800000u;

// The exponent of the group whose greatest magnitude has these bits, which are not those of
// infinity or NaN. What is smaller than 2^-112 is as exact with the scale of that.
__device__ __forceinline__ int split_exponent(unsigned greatest) {
  const int exponent = static_cast<int>(greatest >> 23) - 127;
  return greatest == 0 ? 0 : exponent > -112 ? exponent : -112;
}

// 2^exponent, from -126 to 127.
__device__ __forceinline__ float power_of_two(int exponent) {
  return __uint_as_float(static_cast<unsigned>(exponent + 127) << 23);
}

// What a group is multiplied by: its greatest magnitude comes to lie from 2^14 to 2^15.
inline constexpr int kSplitTop = 14;

__device__ __forceinline__ float split_scale(int exponent) {
  return power_of_two(kSplitTop - exponent);
}

__device__ __forceinline__ unsigned narrow_pair(float low, float high) {
  unsigned pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
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

// Two scaled neighbours as pairs of float16.
__device__ __forceinline__ void split_pair(float first, float second, unsigned& high,
                                           unsigned& low) {
  high = narrow_pair(first, second);
  float first_high;
  float second_high;
  widen_pair(high, first_high, second_high);
  low = narrow_pair(first - first_high, second - second_high);
}

}  // namespace dorajit::kernels
