// The sums of squares of fragments, as the tensor cores lay out a tile: a lane holds two rows,
// eight apart, and two neighbouring columns of every eight (matrix_fragments.cuh), and so two
// chains of each row.
#pragma once

#include "math/weight_norm.h"

namespace dorajit::kernels {

struct NormFragments {
  static constexpr int kRows = 2;

  float chains[kRows][2] = {};
  SpanSums<float, kRows> spans;

  // Elements e and e + 1 of eight columns, `products` of row `row` (0 or 1) of the lane.
  __device__ __forceinline__ void add(int row, float scale, const float (&products)[2],
                                      const float (&weights)[2]) {
    chains[row][0] = add_to_chain(scale, products[0], weights[0], chains[row][0]);
    chains[row][1] = add_to_chain(scale, products[1], weights[1], chains[row][1]);
  }

  // After the last column of a span.
  __device__ __forceinline__ void end_span() {
    float node[kRows];
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      float sum = chains[row][0] + chains[row][1];
      sum = sum + __shfl_xor_sync(0xffffffffu, sum, 1);
      node[row] = sum + __shfl_xor_sync(0xffffffffu, sum, 2);
      chains[row][0] = chains[row][1] = 0;
    }
    spans.push(node);
  }

  // The sums of the two rows.
  __device__ __forceinline__ void root(float (&sums)[kRows]) const { spans.root(sums); }
};

}  // namespace dorajit::kernels
