// A register of elements on the CPU, with a width that is known when the template is compiled.
//
// Packs are passed by reference and every function is inlined, so that a caller compiled for
// another target (builtin_weight_norm.h) decides which instructions are used.
#pragma once

#if defined(__FMA__) || defined(__AVX512F__)
#include <immintrin.h>
#endif

#include "math/fused_multiply_add.h"

// Both compilers keep an array in registers only if every loop over it is unrolled.
#define DORAJIT_UNROLL_FULLY _Pragma("GCC unroll 64")

namespace dorajit::kernels {

// As wide as the widest registers of the target that this file is compiled for.
#if defined(__AVX512F__)
inline constexpr int kPackBytes = 64;
#elif defined(__AVX__)
inline constexpr int kPackBytes = 32;
#else
inline constexpr int kPackBytes = 16;
#endif

template <class T, int kBytes>
struct Pack {
  using Lanes [[gnu::vector_size(kBytes)]] = T;
  static constexpr int kWidth = kBytes / static_cast<int>(sizeof(T));

  Lanes lanes{};

  DORAJIT_FORMULA void load(const T* from) { __builtin_memcpy(&lanes, from, kBytes); }
  DORAJIT_FORMULA void store(T* to) const { __builtin_memcpy(to, &lanes, kBytes); }
  DORAJIT_FORMULA void fill(T value) { lanes = value - Lanes{}; }  // keeps -0, unlike an addition
};

// sum = a * b + sum, rounded once. Compilers for targets with vector multiply-adds turn the loop
// into one; g++ 12 does not for 64 bytes, hence the overloads below.
template <class T, int kBytes>
DORAJIT_FORMULA void multiply_add(const Pack<T, kBytes>& a, const Pack<T, kBytes>& b,
                                  Pack<T, kBytes>& sum) {
  using P = Pack<T, kBytes>;
  typename P::Lanes lanes{};
  DORAJIT_UNROLL_FULLY
  for (int i = 0; i < P::kWidth; ++i) {
    lanes[i] = fused_multiply_add(a.lanes[i], b.lanes[i], sum.lanes[i]);
  }
  sum.lanes = lanes;
}

#ifdef __FMA__
DORAJIT_FORMULA void multiply_add(const Pack<float, 32>& a, const Pack<float, 32>& b,
                                  Pack<float, 32>& sum) {
  sum.lanes = _mm256_fmadd_ps(a.lanes, b.lanes, sum.lanes);
}
DORAJIT_FORMULA void multiply_add(const Pack<double, 32>& a, const Pack<double, 32>& b,
                                  Pack<double, 32>& sum) {
  sum.lanes = _mm256_fmadd_pd(a.lanes, b.lanes, sum.lanes);
}
#endif
#ifdef __AVX512F__
DORAJIT_FORMULA void multiply_add(const Pack<float, 64>& a, const Pack<float, 64>& b,
                                  Pack<float, 64>& sum) {
  sum.lanes = _mm512_fmadd_ps(a.lanes, b.lanes, sum.lanes);
}
DORAJIT_FORMULA void multiply_add(const Pack<double, 64>& a, const Pack<double, 64>& b,
                                  Pack<double, 64>& sum) {
  sum.lanes = _mm512_fmadd_pd(a.lanes, b.lanes, sum.lanes);
}
#endif

}  // namespace dorajit::kernels
