// The sums of squares of accumulator fragments. Of kRows rows, t / 4 and every eighth row after it,
// lane t holds two neighbouring columns of every eight (matrix_fragments.cuh), and so two chains of
// each row. Four neighbouring lanes share their rows; each lane keeps the span sums of one row.
#pragma once

#include "math/weight_norm.h"

namespace dorajit::kernels {

template <int kRows>
struct NormFragments {
  static_assert(kRows == 2 || kRows == 4, "four lanes keep the sums of two or four rows");

  float chains[kRows][2] = {};
  SpanSums<float, 1> spans;

  // Adds two neighbouring columns of the lane's row `row`.
  __device__ __forceinline__ void add(int row, float scale, const float (&products)[2],
                                      const float (&weights)[2]) {
    chains[row][0] = add_to_chain(scale, products[0], weights[0], chains[row][0]);
    chains[row][1] = add_to_chain(scale, products[1], weights[1], chains[row][1]);
  }

  // Must be called after the last column of a span.
  __device__ __forceinline__ void end_span() {
    float node[1] = {0};
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      float sum = chains[row][0] + chains[row][1];
      sum = sum + __shfl_xor_sync(0xffffffffu, sum, 1);
      sum = sum + __shfl_xor_sync(0xffffffffu, sum, 2);
      if (row == kept_row()) node[0] = sum;
      chains[row][0] = chains[row][1] = 0;
    }
    spans.push(node);
  }

  // The index of the lane's row whose sum it keeps. Two lanes may keep the same row.
  static __device__ __forceinline__ int kept_row() { return threadIdx.x % kRows; }
  // Whether this lane, rather than another one, stores the sum of that row.
  static __device__ __forceinline__ bool stores() { return threadIdx.x % 4 < kRows; }
  // The index of that row among the rows of the fragments.
  static __device__ __forceinline__ int kept_place() {
    return threadIdx.x % 32 / 4 + 8 * kept_row();
  }

  // The sum of that row.
  __device__ __forceinline__ float root() const {
    float sums[1];
    spans.root(sums);
    return sums[0];
  }
};

}  // namespace dorajit::kernels
