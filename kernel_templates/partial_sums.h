// How the sum of each channel is divided into partial sums. Shared by host and device; includes
// only such headers.
//
// A sum is a balanced binary tree over leaves in order (docs/numerics.md). Per column, a leaf is a
// run of kRunLength rows that are summed sequentially; per row, a leaf is one term. A partial sum
// is a node of that tree, so no bit depends on which program computes it, or in how many steps.
#pragma once

#include "broadcast.h"

namespace dorajit::kernels {

inline constexpr int kRunLength = 8;
// The minimum number of terms of a partial sum, except at the end of a channel.
inline constexpr long long kMinPartialTerms = 256;
// Columns of a row that one partial sum covers if the channels lie along the rows.
inline constexpr long long kPartialColumns = 4096;

// The second stage of a sum on CUDA: channels per program, and lanes per channel.
inline constexpr int kChannelsPerFinish = 32;
inline constexpr int kFinishLanes = 16;

constexpr long long divide_up(long long value, long long by) { return (value + by - 1) / by; }

constexpr long long power_of_two_up(long long value) {
  long long power = 1;
  while (power < value) power *= 2;
  return power;
}

struct SumLayout {
  long long rows_per_partial;  // rows of one channel
  long long row_groups;        // partial sums along the rows
  long long spans;             // partial sums along the columns

  // Partial sums per channel and sum. Partial sum i covers row group i / spans and span i % spans;
  // that of sum s and channel c lies at workspace[(i * sums + s) * num_channels + c], in the
  // compute type.
  [[nodiscard]] constexpr long long count() const { return row_groups * spans; }
};

// `rows_per_program` of the config is used per column only; it is then a power of two and at least
// kMinPartialTerms.
constexpr SumLayout sum_layout(Broadcast broadcast, long long num_rows, long long num_cols,
                               long long num_channels, long long rows_per_program) {
  if (broadcast == Broadcast::kPerColumn) {
    return {rows_per_program, divide_up(num_rows, rows_per_program), 1};
  }
  if (num_cols == 0) return {1, 0, 0};
  const long long rows = power_of_two_up(divide_up(kMinPartialTerms, num_cols));
  return {rows, divide_up(num_rows / num_channels, rows), divide_up(num_cols, kPartialColumns)};
}

// Bytes of workspace that suffice for every config; `element_size` is that of the compute type,
// times the number of sums. At most 1% of the matrices whose products are summed.
constexpr long long sum_workspace_bytes(Broadcast broadcast, long long num_rows, long long num_cols,
                                        long long num_channels, long long element_size) {
  const long long count =
      sum_layout(broadcast, num_rows, num_cols, num_channels, kMinPartialTerms).count();
  return count > 1 ? count * num_channels * element_size : 0;
}

}  // namespace dorajit::kernels
