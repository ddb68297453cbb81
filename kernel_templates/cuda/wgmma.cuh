// wgmma: products of tiles in shared memory by four warps, accumulated in fp32 registers: sm_90a.
#pragma once

#include "element_type.h"

namespace dorajit::kernels {

// Describes a tile of 16-bit elements in shared memory with 128-byte rows and the 128-byte swizzle.
// `block_bytes` lies between neighbouring blocks of 64 elements across; it matters only where the
// rows of the tile are those of k.
__device__ __forceinline__ unsigned long long describe_tile(unsigned address,
                                                            unsigned block_bytes) {
  constexpr unsigned long long kSwizzle128 = 1ULL << 62;
  constexpr unsigned long long kEightRows = 1024 >> 4;
  return kSwizzle128 | kEightRows << 32 | static_cast<unsigned long long>(block_bytes >> 4) << 16 |
         (address & 0x3ffff) >> 4;
}

// The tile `bytes` on, where both lie within the same 256 KB.
__device__ __forceinline__ unsigned long long later_tile(unsigned long long tile, unsigned bytes) {
  return tile & ~0xffffffffULL | (static_cast<unsigned>(tile) + bytes / 16);
}

// Orders register accesses of this warp before the products that follow.
__device__ __forceinline__ void begin_products() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Until at most so many committed groups are unfinished.
template <int kUnfinished>
__device__ __forceinline__ void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kUnfinished) : "memory");
}

// Changes how many registers each thread of this group of four warps has; a multiple of 8. What
// groups leave, others of the program may take.
template <int kRegisters>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void leave_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// sum = left * right, or + sum with `accumulates`, of 64 rows, 128 columns and 16 of k: `left` with
// k along its rows, `right` with the columns along its rows. Both of one 16-bit type. Thread t of
// the four warps holds of rows 16 (t / 32) + t % 32 / 4 (+ 8) the columns 8 j + 2 (t % 4) + {0, 1}
// in elements 4 j + {0, 1} (+ 2).
inline constexpr int kWgmmaColumns = 128;

#define DORAJIT_FOUR_SUMS(i) "+f"(sum[i]), "+f"(sum[i + 1]), "+f"(sum[i + 2]), "+f"(sum[i + 3])
#define DORAJIT_SIXTEEN_SUMS(i)                                             \
  DORAJIT_FOUR_SUMS(i), DORAJIT_FOUR_SUMS(i + 4), DORAJIT_FOUR_SUMS(i + 8), \
      DORAJIT_FOUR_SUMS(i + 12)
#define DORAJIT_WGMMA(type)                                                             \
  asm volatile(                                                                         \
      "{\n"                                                                             \
      ".reg .pred accumulates;\n"                                                       \
      "setp.ne.b32 accumulates, %66, 0;\n"                                              \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type                      \
      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"         \
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31," \
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47," \
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"  \
      "}, %64, %65, accumulates, 1, 1, 0, 1;\n"                                         \
      "}"                                                                               \
      : DORAJIT_SIXTEEN_SUMS(0), DORAJIT_SIXTEEN_SUMS(16), DORAJIT_SIXTEEN_SUMS(32),    \
        DORAJIT_SIXTEEN_SUMS(48)                                                        \
      : "l"(left), "l"(right), "r"(static_cast<int>(accumulates)))

template <ElementType kType>
__device__ __forceinline__ void multiply_tiles(float (&sum)[64], unsigned long long left,
                                               unsigned long long right, bool accumulates) {
  if constexpr (kType == ElementType::kBfloat16) {
    DORAJIT_WGMMA("bf16");
  } else {
    DORAJIT_WGMMA("f16");
  }
}

#undef DORAJIT_WGMMA
#undef DORAJIT_SIXTEEN_SUMS
#undef DORAJIT_FOUR_SUMS

}  // namespace dorajit::kernels
