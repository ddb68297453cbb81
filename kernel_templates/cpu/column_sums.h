// Kernels with sums per column on the CPU: the counterpart of cuda/column_sums.cuh.
//
// Programs are numbered with columns fastest. Each walks its rows once, a tile of columns at a
// time, and produces one node of each column's tree.
#pragma once

#include "cpu/finish_sums.h"

namespace dorajit::kernels {

template <class Spans, StreamingConfig kConfig>
struct ColumnSumsPrograms {
  static_assert(is_valid_for_cpu_column_sums(kConfig),
                "rows_per_program must be a power of two and at least 256");

  using F = typename Spans::F;
  using T = typename Spans::T;

  static constexpr int kSums = F::kSums;
  static constexpr int kTile = 1024;

  static constexpr int levels_above(long long runs) {
    return runs <= 1 ? 1 : 1 + levels_above(runs / 2);
  }
  static constexpr int kLevels = levels_above(kConfig.rows_per_program / kRunLength);

  // Sums rows [first_row, last_row) in order, starting with the first.
  static void sum_run(const Spans& spans, const KernelArguments& arguments, const F& formula,
                      long long first_row, long long last_row, long long col, long long count,
                      T (&sums)[kSums][kTile]) {
    spans.run(formula, point_at<Broadcast::kPerColumn>(spans, arguments, first_row, col), count,
              {sums[0], kTile});
    alignas(64) T terms[kSums][kTile];
    for (long long row = first_row + 1; row < last_row; ++row) {
      spans.run(formula, point_at<Broadcast::kPerColumn>(spans, arguments, row, col), count,
                {terms[0], kTile});
      for (int s = 0; s < kSums; ++s) {
        for (long long i = 0; i < count; ++i) sums[s][i] = sums[s][i] + terms[s][i];
      }
    }
  }

  static void run_tile(const Spans& spans, const KernelArguments& arguments, const F& formula,
                       const SumLayout& layout, long long group, long long col, long long count) {
    const long long first_row = group * kConfig.rows_per_program;
    const long long last_row = arguments.sizes[kRows] - first_row < kConfig.rows_per_program
                                   ? arguments.sizes[kRows]
                                   : first_row + kConfig.rows_per_program;
    TileSum<T, kLevels, kTile> trees[kSums];
    alignas(64) T node[kSums][kTile];
    long long runs = 0;
    for (long long row = first_row; row < last_row; row += kRunLength) {
      sum_run(spans, arguments, formula, row,
              last_row - row < kRunLength ? last_row : row + kRunLength, col, count, node);
      for (int s = 0; s < kSums; ++s) trees[s].push(runs, node[s], count);
      ++runs;
    }
    for (int s = 0; s < kSums; ++s) trees[s].root(runs, node[s], count);
    for (long long i = 0; i < count; ++i) {
      T sums[kSums];
      for (int s = 0; s < kSums; ++s) sums[s] = node[s][i];
      put_sums(spans, arguments, layout, group, col + i, sums);
    }
  }

  static void run(const Spans& spans, const KernelArguments& arguments, long long first_program,
                  long long last_program) {
    const F formula(arguments.scalars);
    const SumLayout layout =
        sum_layout(Broadcast::kPerColumn, arguments.sizes[kRows], arguments.sizes[kCols],
                   arguments.sizes[kCols], kConfig.rows_per_program);
    const long long column_blocks = divide_up(arguments.sizes[kCols], kConfig.block_size);
    for (long long program = first_program; program < last_program; ++program) {
      const long long first_col = program % column_blocks * kConfig.block_size;
      const long long last_col = first_col + kConfig.block_size < arguments.sizes[kCols]
                                     ? first_col + kConfig.block_size
                                     : arguments.sizes[kCols];
      for (long long col = first_col; col < last_col; col += kTile) {
        run_tile(spans, arguments, formula, layout, program / column_blocks, col,
                 last_col - col < kTile ? last_col - col : kTile);
      }
    }
  }
};

}  // namespace dorajit::kernels

// The code that is generated per kernel. `config` is in parentheses.
#define DORAJIT_COLUMN_SUMS_KERNEL(formula, config, broadcast, ...)                              \
  static_assert(broadcast == dorajit::kernels::Broadcast::kPerColumn);                           \
  extern "C" __attribute__((visibility("default"))) void dorajit_kernel(                         \
      const dorajit::kernels::KernelArguments* arguments, long long first_program,               \
      long long last_program) {                                                                  \
    using Spans = dorajit::kernels::TypedSpans<formula, broadcast, __VA_ARGS__>;                 \
    dorajit::kernels::ColumnSumsPrograms<Spans, config>::run(Spans{}, *arguments, first_program, \
                                                             last_program);                      \
  }                                                                                              \
  DORAJIT_FINISH_SUMS_KERNEL(formula, config, broadcast, __VA_ARGS__)
