// The 16-bit element types of own kernels, which include this file as "dorajit/types.cuh". They
// convert to float, and from float with one rounding to nearest even; arithmetic on them is in
// float. NVRTC lacks the toolkit's headers, so __nv_bfloat16 and __half are not available.
#pragma once

namespace dorajit {

struct alignas(2) bfloat16 {
  unsigned short bits;

  bfloat16() = default;
  __device__ __forceinline__ bfloat16(float value) {
#if __CUDA_ARCH__ >= 800
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
#else
    const unsigned word = __float_as_uint(value);
    const bool is_nan = (word & 0x7fffffffu) > 0x7f800000u;
    bits =
        is_nan ? 0x7fff : static_cast<unsigned short>((word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
#endif
  }
  __device__ __forceinline__ operator float() const {
    return __uint_as_float(static_cast<unsigned>(bits) << 16);
  }
};

struct alignas(2) float16 {
  unsigned short bits;

  float16() = default;
  __device__ __forceinline__ float16(float value) {
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  }
  __device__ __forceinline__ operator float() const {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
  }
};

}  // namespace dorajit
