// wgmma: a warpgroup multiplies tiles in shared memory and accumulates in fp32 registers: sm_90a.
#pragma once

#include "element_type.h"

namespace dorajit::kernels {

// The descriptor of a tile of 16-bit elements in shared memory with 128-byte rows and the 128-byte
// swizzle. `block_bytes` is the distance between neighbouring blocks of 64 elements across; it
// matters only if the rows of the tile are those of k.
__device__ __forceinline__ unsigned long long describe_tile(unsigned address,
                                                            unsigned block_bytes) {
  constexpr unsigned long long kSwizzle128 = 1ULL << 62;
  constexpr unsigned long long kEightRows = 1024 >> 4;
  return kSwizzle128 | kEightRows << 32 | static_cast<unsigned long long>(block_bytes >> 4) << 16 |
         (address & 0x3ffff) >> 4;
}

// The descriptor of the tile `bytes` later; both must lie within the same 256 KB.
__device__ __forceinline__ unsigned long long later_tile(unsigned long long tile, unsigned bytes) {
  return tile & ~0xffffffffULL | (static_cast<unsigned>(tile) + bytes / 16);
}

// Orders register accesses of this warp before the following products.
__device__ __forceinline__ void begin_products() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits until at most kUnfinished committed groups are unfinished.
template <int kUnfinished>
__device__ __forceinline__ void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kUnfinished) : "memory");
}

// Keeps the compiler from moving accesses to accumulators across the asynchronous products.
template <int kCount>
__device__ __forceinline__ void keep_in_registers(float (&sum)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(sum[i])::"memory");
}
template <int kSlabs, int kCount>
__device__ __forceinline__ void keep_in_registers(float (&sum)[kSlabs][kCount]) {
#pragma unroll
  for (int slab = 0; slab < kSlabs; ++slab) keep_in_registers(sum[slab]);
}

// Changes the register count of each thread of this warpgroup to kRegisters, a multiple of 8. Other
// warpgroups of the program may take the registers that one leaves.
template <int kRegisters>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void leave_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// sum = left * right, or sum + left * right with `accumulates`, for 64 rows, 128 columns and 16 of
// k. `left` has k along its rows, `right` the columns; both have one 16-bit type. Thread t of the
// four warps holds columns 8 j + 2 (t % 4) + {0, 1} of rows 16 (t / 32) + t % 32 / 4 (+ 8) in
// elements 4 j + {0, 1} (+ 2).
inline constexpr int kWgmmaColumns = 128;

#define DORAJIT_FOUR_SUMS(i) "+f"(sum[i]), "+f"(sum[i + 1]), "+f"(sum[i + 2]), "+f"(sum[i + 3])
#define DORAJIT_SIXTEEN_SUMS(i)                                             \
  DORAJIT_FOUR_SUMS(i), DORAJIT_FOUR_SUMS(i + 4), DORAJIT_FOUR_SUMS(i + 8), \
      DORAJIT_FOUR_SUMS(i + 12)
#define DORAJIT_64_SUMS(i)                                                             \
  DORAJIT_SIXTEEN_SUMS(i), DORAJIT_SIXTEEN_SUMS(i + 16), DORAJIT_SIXTEEN_SUMS(i + 32), \
      DORAJIT_SIXTEEN_SUMS(i + 48)
#define DORAJIT_WGMMA_128(type, transposes_right)                                       \
  asm volatile(                                                                         \
      "{\n"                                                                             \
      ".reg .pred accumulates;\n"                                                       \
      "setp.ne.b32 accumulates, %66, 0;\n"                                              \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type                      \
      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"         \
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31," \
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47," \
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"  \
      "}, %64, %65, accumulates, 1, 1, 0, " transposes_right                            \
      ";\n"                                                                             \
      "}"                                                                               \
      : DORAJIT_64_SUMS(0)                                                              \
      : "l"(left), "l"(right), "r"(static_cast<int>(accumulates)))

template <ElementType kType>
__device__ __forceinline__ void multiply_tiles(float (&sum)[64], unsigned long long left,
                                               unsigned long long right, bool accumulates) {
  if constexpr (kType == ElementType::kBfloat16) {
    DORAJIT_WGMMA_128("bf16", "1");
  } else {
    DORAJIT_WGMMA_128("f16", "1");
  }
}

// sum = left * right^T, or sum + left * right^T with `accumulates`, for 64 rows of `left`, 128 or
// 256 rows of `right` and 16 of k. The sums have the register layout of multiply_tiles().
#define DORAJIT_WGMMA_256(type)                                                                    \
  asm volatile(                                                                                    \
      "{\n"                                                                                        \
      ".reg .pred accumulates;\n"                                                                  \
      "setp.ne.b32 accumulates, %130, 0;\n"                                                        \
      "wgmma.mma_async.sync.aligned.m64n256k16.f32." type "." type                                 \
      " {"                                                                                         \
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                     \
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "           \
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "           \
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "           \
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "           \
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "           \
      "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, "     \
      "%111, "                                                                                     \
      "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, " \
      "%127"                                                                                       \
      "}, %128, %129, accumulates, 1, 1, 0, 0;\n"                                                  \
      "}"                                                                                          \
      : DORAJIT_64_SUMS(0), DORAJIT_64_SUMS(64)                                                    \
      : "l"(left), "l"(right), "r"(static_cast<int>(accumulates)))

template <ElementType kType>
__device__ __forceinline__ void multiply_rows(float (&sum)[64], unsigned long long left,
                                              unsigned long long right, bool accumulates) {
  if constexpr (kType == ElementType::kBfloat16) {
    DORAJIT_WGMMA_128("bf16", "0");
  } else {
    DORAJIT_WGMMA_128("f16", "0");
  }
}

template <ElementType kType>
__device__ __forceinline__ void multiply_rows(float (&sum)[128], unsigned long long left,
                                              unsigned long long right, bool accumulates) {
  if constexpr (kType == ElementType::kBfloat16) {
    DORAJIT_WGMMA_256("bf16");
  } else {
    DORAJIT_WGMMA_256("f16");
  }
}

#undef DORAJIT_WGMMA_256
#undef DORAJIT_WGMMA_128
#undef DORAJIT_64_SUMS
#undef DORAJIT_SIXTEEN_SUMS
#undef DORAJIT_FOUR_SUMS

}  // namespace dorajit::kernels
