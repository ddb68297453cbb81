// Sums along the balanced binary tree: a node is the sum of its two children. Terms beyond the last
// one are absent; the sum of an absent node and its neighbour is the neighbour.
#pragma once

#include "math/qualifiers.h"

namespace dorajit::kernels {

// The one number whose addition changes no other number, zeros of either sign included.
template <class T>
DORAJIT_FORMULA T absent_term() {
  return T(-0.0);
}

// The node above kCount neighbours; kCount is a power of two.
template <int kCount, class T>
DORAJIT_FORMULA T sum_of_neighbours(const T* terms) {
  if constexpr (kCount == 1) {
    return terms[0];
  } else {
    return sum_of_neighbours<kCount / 2>(terms) + sum_of_neighbours<kCount / 2>(terms + kCount / 2);
  }
}

// Takes the nodes of one level in order, for kWidth trees side by side. For each level it keeps at
// most one node that waits for its neighbour. Supports up to 2^kLevels - 1 nodes.
template <class T, int kLevels, int kWidth = 1>
struct PairwiseSum {
  T pending[kLevels][kWidth];

  // `index` counts from 0. `node` is overwritten; after the last of 2^n nodes it holds the root.
  // The loop visits every level, so that the compiler keeps `pending` in registers.
  DORAJIT_FORMULA void push(long long index, T (&node)[kWidth]) {
    bool carries = true;
    DORAJIT_UNROLL
    for (int level = 0; level < kLevels; ++level) {
      const bool is_right = (index >> level & 1) != 0;
      if (carries && is_right) {
        DORAJIT_UNROLL
        for (int i = 0; i < kWidth; ++i) node[i] = pending[level][i] + node[i];
      } else if (carries) {
        DORAJIT_UNROLL
        for (int i = 0; i < kWidth; ++i) pending[level][i] = node[i];
      }
      carries = carries && is_right;
    }
  }

  // The root above the `count` nodes that were pushed.
  DORAJIT_FORMULA void root(long long count, T (&sum)[kWidth]) const {
    DORAJIT_UNROLL
    for (int i = 0; i < kWidth; ++i) sum[i] = absent_term<T>();
    DORAJIT_UNROLL
    for (int level = 0; level < kLevels; ++level) {
      if ((count >> level & 1) != 0) {
        DORAJIT_UNROLL
        for (int i = 0; i < kWidth; ++i) sum[i] = pending[level][i] + sum[i];
      }
    }
  }
};

}  // namespace dorajit::kernels
