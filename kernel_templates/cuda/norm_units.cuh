// Units of W: 128 bytes of each row of a program, loaded into shared memory by the copy engine.
#pragma once

#include "cuda/async_copy.cuh"
#include "cuda/elements.cuh"
#include "cuda/matrix_fragments.cuh"
#include "cuda/norm_fragments.cuh"
#include "weight_norm_config.h"

namespace dorajit::kernels {

template <ElementType kType>
struct NormUnits {
  using Sums = NormFragments<2>;
  using Weight = Element<kType>;
  static constexpr int kRowBytes = kWgmmaRowBytes;
  static constexpr int kColumns = kRowBytes / size_in_bytes(kType);

  // Adds the columns of one unit; each warp adds 16 rows from `first_row` on. `products` holds the
  // products of these columns in wgmma's layout. Arrives at `empty` once per warp.
  static __device__ __forceinline__ void add(unsigned unit, int first_row, float scale,
                                             const float* products, Barrier empty, Sums& sums) {
    const int lane = threadIdx.x % 32;
    if constexpr (size_in_bytes(kType) == 2) {
      const int row = first_row + lane % 16;
      unsigned weights[4][4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        load_fragments(unit + row * kRowBytes + (((2 * i + lane / 16) ^ (row % 8)) * 16),
                       weights[i]);
      }
      __syncwarp();
      if (lane == 0) empty.arrive();
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int part = 0; part < 4; ++part) {
          const float pair[2] = {
              Weight::widen(static_cast<unsigned short>(weights[i][part])),
              Weight::widen(static_cast<unsigned short>(weights[i][part] >> 16))};
          const float found[2] = {products[8 * i + 2 * part], products[8 * i + 2 * part + 1]};
          sums.add(part % 2, scale, found, pair);
        }
      }
    } else {
      float weights[4][2][2];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int row = first_row + lane / 4 + 8 * h;
          const int chunk = 2 * j + lane % 4 / 2;
          const unsigned from = unit + row * kRowBytes + ((chunk ^ (row % 8)) * 16) + lane % 2 * 8;
          asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                       : "=f"(weights[j][h][0]), "=f"(weights[j][h][1])
                       : "r"(from)
                       : "memory");
        }
      }
      __syncwarp();
      if (lane == 0) empty.arrive();
#pragma unroll
      for (int j = 0; j < 4; ++j) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const float found[2] = {products[4 * j + 2 * h], products[4 * j + 2 * h + 1]};
          sums.add(h, scale, found, weights[j][h]);
        }
      }
    }
  }
};

}  // namespace dorajit::kernels
