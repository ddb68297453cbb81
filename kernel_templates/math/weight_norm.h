// The squared norms of the rows of W + s B A, in the summation order of every kernel.
//
// The columns of a row are divided into spans of 256. A span has eight chains; column j belongs to
// chain j mod 8. A chain starts at 0 and takes its columns in ascending order:
//
//     v = s * (B A)_ij + W_ij        rounded once
//     chain = v * v + chain          rounded once
//
// A balanced binary tree (pairwise_sum.h) adds the eight chains; another one adds up to 1024 spans.
// The roots of the trees of longer rows are added in order. A part of a row is an aligned power of
// two of spans, so its sum is a node of the tree whichever program computes it; rows of more than
// 1024 spans have one part. Columns beyond the last add the square of 0.
#pragma once

#include "element_type.h"
#include "math/fused_multiply_add.h"
#include "math/pairwise_sum.h"
#include "math/square_root.h"

namespace dorajit::kernels {

// The dimensions of weight_norm, as indices into its sizes.
inline constexpr int kNormRows = 0;
inline constexpr int kNormColumns = 1;
inline constexpr int kNormRank = 2;

// Its operands, in their order.
enum NormOperand : int {
  kNormWeight,
  kNormLoraA,
  kNormLoraB,
  kNormMagnitude,
  kNormNorm,
  kNormSquare,
  kNormGain,
  kNormDivisor,
  kNormOperands
};

inline constexpr int kNormSpan = 256;
inline constexpr int kNormChains = 8;
// An element of B A is a sum of block sums, each over this many k. Within a block tensor cores
// truncate, and the errors of products of one sign accumulate; the block sums are added in
// ascending order and rounded to nearest.
inline constexpr int kNormRankBlock = 64;
// Maximum parts of a row. The workspace keeps their sums until the second stage adds them.
inline constexpr int kMaxNormParts = 8;
// A tree has 2^10 spans, or 262144 columns.
inline constexpr int kNormLevels = 10;
inline constexpr int kNormTree = 1 << kNormLevels;

inline constexpr int kNormFinishThreads = 128;  // per program of the second stage

// The sums of spans, for kWidth rows side by side.
template <class T, int kWidth>
struct SpanSums {
  PairwiseSum<T, kNormLevels, kWidth> tree;
  int in_tree = 0;
  T total[kWidth] = {};

  // Spans must be pushed in order; `node` is overwritten.
  DORAJIT_FORMULA void push(T (&node)[kWidth]) {
    tree.push(in_tree++, node);
    if (in_tree < kNormTree) return;
    DORAJIT_UNROLL
    for (int i = 0; i < kWidth; ++i) total[i] = total[i] + node[i];
    in_tree = 0;
  }

  DORAJIT_FORMULA void root(T (&sums)[kWidth]) const {
    tree.root(in_tree, sums);
    DORAJIT_UNROLL
    for (int i = 0; i < kWidth; ++i) sums[i] = total[i] + sums[i];
  }
};

// The division of the columns into at most `most` parts.
struct NormParts {
  long long spans;  // per part; a power of two, or a multiple of a tree
  long long count;  // at least 1

  [[nodiscard]] constexpr long long columns() const { return spans * kNormSpan; }
};

constexpr NormParts norm_parts(long long columns, int most) {
  const long long spans = (columns + kNormSpan - 1) / kNormSpan;
  if (spans > kNormTree) return {(spans + kNormTree - 1) / kNormTree * kNormTree, 1};
  NormParts parts{1, spans};
  for (int level = 1; parts.count > most; ++level) {  // every program runs this: avoid a division
    parts.spans = 1LL << level;
    parts.count = (spans + parts.spans - 1) >> level;
  }
  if (parts.count < 1) parts.count = 1;
  return parts;
}

template <class T>
DORAJIT_FORMULA T add_to_chain(T scale, T product, T weight, T chain) {
  const T value = fused_multiply_add(scale, product, weight);
  return fused_multiply_add(value, value, chain);
}

// The minimum divisor of a magnitude of this type. float16 would round 1e-12 to 0.
constexpr double least_norm(ElementType magnitude) {
  return magnitude == ElementType::kFloat16 ? 1e-6 : 1e-12;
}

// The divisor of a row's magnitude that gives its gain. The caller rounds it to the type of the
// magnitude and widens it again, so that a magnitude made from any norm has a gain of exactly 1.
template <class T>
DORAJIT_FORMULA T divisor_of(T norm, T least) {
  return norm < least ? least : norm;  // propagates NaN
}

}  // namespace dorajit::kernels
