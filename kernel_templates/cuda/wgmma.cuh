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

// sum = left * right, or + sum with `accumulates`, of 64 rows, 128 columns and 16 of k: `left` with
// k along its rows, `right` with the columns along its rows. Both of one 16-bit type. Thread t of
// the four warps holds of rows 16 (t / 32) + t % 32 / 4 (+ 8) the columns 8 j + 2 (t % 4) + {0, 1}
// in elements 4 j + {0, 1} (+ 2).
inline constexpr int kWgmmaColumns = 128;

template <ElementType kType>
struct Wgmma;

template <>
struct Wgmma<ElementType::kBfloat16> {
  static __device__ __forceinline__ void multiply(float (&sum)[64], unsigned long long left,
                                                  unsigned long long right, bool accumulates) {
    asm volatile(
        "{\n"
        ".reg .pred accumulates;\n"
        "setp.ne.b32 accumulates, %66, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31,"
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47,"
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
        "}, %64, %65, accumulates, 1, 1, 0, 1;\n"
        "}"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3]), "+f"(sum[4]), "+f"(sum[5]),
          "+f"(sum[6]), "+f"(sum[7]), "+f"(sum[8]), "+f"(sum[9]), "+f"(sum[10]), "+f"(sum[11]),
          "+f"(sum[12]), "+f"(sum[13]), "+f"(sum[14]), "+f"(sum[15]), "+f"(sum[16]), "+f"(sum[17]),
          "+f"(sum[18]), "+f"(sum[19]), "+f"(sum[20]), "+f"(sum[21]), "+f"(sum[22]), "+f"(sum[23]),
          "+f"(sum[24]), "+f"(sum[25]), "+f"(sum[26]), "+f"(sum[27]), "+f"(sum[28]), "+f"(sum[29]),
          "+f"(sum[30]), "+f"(sum[31]), "+f"(sum[32]), "+f"(sum[33]), "+f"(sum[34]), "+f"(sum[35]),
          "+f"(sum[36]), "+f"(sum[37]), "+f"(sum[38]), "+f"(sum[39]), "+f"(sum[40]), "+f"(sum[41]),
          "+f"(sum[42]), "+f"(sum[43]), "+f"(sum[44]), "+f"(sum[45]), "+f"(sum[46]), "+f"(sum[47]),
          "+f"(sum[48]), "+f"(sum[49]), "+f"(sum[50]), "+f"(sum[51]), "+f"(sum[52]), "+f"(sum[53]),
          "+f"(sum[54]), "+f"(sum[55]), "+f"(sum[56]), "+f"(sum[57]), "+f"(sum[58]), "+f"(sum[59]),
          "+f"(sum[60]), "+f"(sum[61]), "+f"(sum[62]), "+f"(sum[63])
        : "l"(left), "l"(right), "r"(static_cast<int>(accumulates)));
  }
};

template <>
struct Wgmma<ElementType::kFloat16> {
  static __device__ __forceinline__ void multiply(float (&sum)[64], unsigned long long left,
                                                  unsigned long long right, bool accumulates) {
    asm volatile(
        "{\n"
        ".reg .pred accumulates;\n"
        "setp.ne.b32 accumulates, %66, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31,"
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47,"
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
        "}, %64, %65, accumulates, 1, 1, 0, 1;\n"
        "}"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3]), "+f"(sum[4]), "+f"(sum[5]),
          "+f"(sum[6]), "+f"(sum[7]), "+f"(sum[8]), "+f"(sum[9]), "+f"(sum[10]), "+f"(sum[11]),
          "+f"(sum[12]), "+f"(sum[13]), "+f"(sum[14]), "+f"(sum[15]), "+f"(sum[16]), "+f"(sum[17]),
          "+f"(sum[18]), "+f"(sum[19]), "+f"(sum[20]), "+f"(sum[21]), "+f"(sum[22]), "+f"(sum[23]),
          "+f"(sum[24]), "+f"(sum[25]), "+f"(sum[26]), "+f"(sum[27]), "+f"(sum[28]), "+f"(sum[29]),
          "+f"(sum[30]), "+f"(sum[31]), "+f"(sum[32]), "+f"(sum[33]), "+f"(sum[34]), "+f"(sum[35]),
          "+f"(sum[36]), "+f"(sum[37]), "+f"(sum[38]), "+f"(sum[39]), "+f"(sum[40]), "+f"(sum[41]),
          "+f"(sum[42]), "+f"(sum[43]), "+f"(sum[44]), "+f"(sum[45]), "+f"(sum[46]), "+f"(sum[47]),
          "+f"(sum[48]), "+f"(sum[49]), "+f"(sum[50]), "+f"(sum[51]), "+f"(sum[52]), "+f"(sum[53]),
          "+f"(sum[54]), "+f"(sum[55]), "+f"(sum[56]), "+f"(sum[57]), "+f"(sum[58]), "+f"(sum[59]),
          "+f"(sum[60]), "+f"(sum[61]), "+f"(sum[62]), "+f"(sum[63])
        : "l"(left), "l"(right), "r"(static_cast<int>(accumulates)));
  }
};

}  // namespace dorajit::kernels
