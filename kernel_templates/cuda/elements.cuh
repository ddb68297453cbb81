// Widening and narrowing of elements on CUDA devices, without any toolkit header.
#pragma once

#include "element_type.h"

namespace dorajit::kernels {

// Element<E>::widen converts the storage bits of one element to the compute type; narrow rounds
// once, to nearest even, and returns the storage bits.
template <ElementType kType>
struct Element;

template <>
struct Element<ElementType::kFloat32> {
  using Bits = unsigned;
  static __device__ __forceinline__ float widen(Bits bits) { return __uint_as_float(bits); }
  static __device__ __forceinline__ Bits narrow(float value) { return __float_as_uint(value); }
};

template <>
struct Element<ElementType::kFloat64> {
  using Bits = unsigned long long;
  static __device__ __forceinline__ double widen(Bits bits) {
    return __longlong_as_double(static_cast<long long>(bits));
  }
  static __device__ __forceinline__ Bits narrow(double value) {
    return static_cast<Bits>(__double_as_longlong(value));
  }
};

template <>
struct Element<ElementType::kBfloat16> {
  using Bits = unsigned short;
  static __device__ __forceinline__ float widen(Bits bits) {
    return __uint_as_float(static_cast<unsigned>(bits) << 16);
  }
  static __device__ __forceinline__ Bits narrow(float value) {
#if __CUDA_ARCH__ >= 800
    Bits bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
#else
    const unsigned word = __float_as_uint(value);
    if ((word & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
    return static_cast<Bits>((word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
#endif
  }
};

template <>
struct Element<ElementType::kFloat16> {
  using Bits = unsigned short;
  static __device__ __forceinline__ float widen(Bits bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
  }
  static __device__ __forceinline__ Bits narrow(float value) {
    Bits bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
  }
};

}  // namespace dorajit::kernels
