// Sums along the balanced tree on the CPU, for a tile of channels or of columns at a time.
#pragma once

#include "math/pairwise_sum.h"

namespace dorajit::kernels {

// Pairwise sums of kTile trees side by side; see PairwiseSum. The caller owns the storage.
template <class T, int kLevels, int kTile>
struct TileSum {
  alignas(64) T pending[kLevels][kTile];  // a level is written before it is read: see push()

  // `index` counts from 0; `node` is overwritten.
  void push(long long index, T* node, long long count) {
    for (int level = 0; level < kLevels; ++level) {
      T* waiting = pending[level];
      if ((index >> level & 1) == 0) {
        for (long long i = 0; i < count; ++i) waiting[i] = node[i];
        return;
      }
      // NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult)
      for (long long i = 0; i < count; ++i) node[i] = waiting[i] + node[i];
    }
  }

  // The root of the tree over the `nodes` pushed so far.
  void root(long long nodes, T* sum, long long count) const {
    for (long long i = 0; i < count; ++i) sum[i] = absent_term<T>();
    for (int level = 0; level < kLevels; ++level) {
      if ((nodes >> level & 1) == 0) continue;
      // NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult)
      for (long long i = 0; i < count; ++i) sum[i] = pending[level][i] + sum[i];
    }
  }
};

// The root of the tree over `count` terms, which are overwritten.
template <class T>
inline T sum_of_terms(T* terms, long long count) {
  while (count > 1) {
    const long long pairs = count / 2;
    for (long long i = 0; i < pairs; ++i) terms[i] = terms[2 * i] + terms[2 * i + 1];
    if (count % 2 != 0) terms[pairs] = terms[count - 1];
    count -= pairs;
  }
  return count == 1 ? terms[0] : absent_term<T>();
}

}  // namespace dorajit::kernels
