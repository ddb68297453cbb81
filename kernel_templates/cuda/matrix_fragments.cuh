// Fragments of 16-bit tiles: loads from shared memory to registers, and products by one warp: sm_80
// and newer.
#pragma once

#include "element_type.h"

namespace dorajit::kernels {

// Rounds two elements to 16 bits each; `low` comes first in memory.
template <ElementType kType>
__device__ __forceinline__ unsigned narrow_pair(float low, float high) {
  unsigned pair;
  if constexpr (kType == ElementType::kBfloat16) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  }
  return pair;
}

// Loads four 8 x 8 matrices. Lanes 8 i to 8 i + 7 pass the addresses of the rows of matrix i. Lane
// t receives elements 2 (t % 4) + {0, 1} of row t / 4 of each matrix.
__device__ __forceinline__ void load_fragments(unsigned address, unsigned (&fragments)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(fragments[0]), "=r"(fragments[1]), "=r"(fragments[2]), "=r"(fragments[3])
               : "r"(address)
               : "memory");
}

// The same, with each matrix transposed.
__device__ __forceinline__ void load_fragments_transposed(unsigned address,
                                                          unsigned (&fragments)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(fragments[0]), "=r"(fragments[1]), "=r"(fragments[2]), "=r"(fragments[3])
               : "r"(address)
               : "memory");
}

// sum += left * right, for 16 rows, 8 columns and 16 of k. Lane t holds columns 2 (t % 4) + {0, 1}
// of rows t / 4 (+ 8) in elements {0, 1} (+ 2).
template <ElementType kType>
__device__ __forceinline__ void multiply_fragments(float (&sum)[4], const unsigned (&left)[4],
                                                   unsigned right_low, unsigned right_high) {
  if constexpr (kType == ElementType::kBfloat16) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7},"
        " {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right_low), "r"(right_high));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7},"
        " {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right_low), "r"(right_high));
  }
}

// sums += left * right over 16 of k, for kSlabs slabs of 16 rows and kEights times eight columns.
// load_left(slab, fragments) loads 16 rows, load_right(eight, fragments) two times eight columns.
template <ElementType kType, int kSlabs, int kEights, class LoadLeft, class LoadRight>
__device__ __forceinline__ void multiply_slabs(float (&sums)[kSlabs][kEights][4],
                                               const LoadLeft& load_left,
                                               const LoadRight& load_right) {
  unsigned left[kSlabs][4];
#pragma unroll
  for (int slab = 0; slab < kSlabs; ++slab) load_left(slab, left[slab]);
#pragma unroll
  for (int eight = 0; eight < kEights; eight += 2) {
    unsigned right[4];
    load_right(eight, right);
#pragma unroll
    for (int slab = 0; slab < kSlabs; ++slab) {
      multiply_fragments<kType>(sums[slab][eight], left[slab], right[0], right[1]);
      multiply_fragments<kType>(sums[slab][eight + 1], left[slab], right[2], right[3]);
    }
  }
}

}  // namespace dorajit::kernels
