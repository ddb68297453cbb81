// Kernels with sums per channel, with channels along the rows, on the CPU: the counterpart of
// cuda/row_sums.cuh. A program computes rows_per_program partial sums.
#pragma once

#include "cpu/finish_sums.h"

namespace dorajit::kernels {

template <class Spans, StreamingConfig kConfig>
struct RowSumsPrograms {
  static_assert(is_valid_for_cpu(kConfig), "CPU configs have vector_width 1 and unroll 1");

  using F = typename Spans::F;
  using T = typename Spans::T;

  static constexpr int kSums = F::kSums;
  static constexpr int kLevels = 13;  // of the samples in a partial sum

  static void run_task(const Spans& spans, const KernelArguments& arguments, const F& formula,
                       const SumLayout& layout, long long task) {
    const long long channels = arguments.sizes[kChannels];
    if (channels <= 0 || layout.spans <= 0) __builtin_unreachable();  // otherwise there is no task
    const long long channel = task % channels;
    const long long index = task / channels;
    const long long samples = arguments.sizes[kRows] / channels;
    const long long first_sample = index / layout.spans * layout.rows_per_partial;
    const long long last_sample = first_sample + layout.rows_per_partial < samples
                                      ? first_sample + layout.rows_per_partial
                                      : samples;
    const long long col = index % layout.spans * kPartialColumns;
    const long long count = arguments.sizes[kCols] - col < kPartialColumns
                                ? arguments.sizes[kCols] - col
                                : kPartialColumns;
    TileSum<T, kLevels, 1> trees[kSums];
    alignas(64) T terms[kSums][kPartialColumns];
    for (long long sample = first_sample; sample < last_sample; ++sample) {
      const long long row = sample * channels + channel;
      spans.run(formula, point_at<Broadcast::kPerRow>(spans, arguments, row, col), count,
                {terms[0], kPartialColumns});
      for (int s = 0; s < kSums; ++s) {
        T node = sum_of_terms(terms[s], count);
        trees[s].push(sample - first_sample, &node, 1);
      }
    }
    T roots[kSums];
    for (int s = 0; s < kSums; ++s) trees[s].root(last_sample - first_sample, &roots[s], 1);
    put_sums(spans, arguments, layout, index, channel, roots);
  }

  static void run(const Spans& spans, const KernelArguments& arguments, long long first_program,
                  long long last_program) {
    const F formula(arguments.scalars);
    const SumLayout layout =
        sum_layout(Broadcast::kPerRow, arguments.sizes[kRows], arguments.sizes[kCols],
                   arguments.sizes[kChannels], kConfig.rows_per_program);
    const long long tasks = layout.count() * arguments.sizes[kChannels];
    const long long last_task = last_program * kConfig.rows_per_program < tasks
                                    ? last_program * kConfig.rows_per_program
                                    : tasks;
    for (long long task = first_program * kConfig.rows_per_program; task < last_task; ++task) {
      run_task(spans, arguments, formula, layout, task);
    }
  }
};

}  // namespace dorajit::kernels

// The code that is generated per kernel. `config` is in parentheses.
#define DORAJIT_ROW_SUMS_KERNEL(formula, config, broadcast, ...)                              \
  static_assert(broadcast == dorajit::kernels::Broadcast::kPerRow);                           \
  extern "C" __attribute__((visibility("default"))) void dorajit_kernel(                      \
      const dorajit::kernels::KernelArguments* arguments, long long first_program,            \
      long long last_program) {                                                               \
    using Spans = dorajit::kernels::TypedSpans<formula, broadcast, __VA_ARGS__>;              \
    dorajit::kernels::RowSumsPrograms<Spans, config>::run(Spans{}, *arguments, first_program, \
                                                          last_program);                      \
  }                                                                                           \
  DORAJIT_FINISH_SUMS_KERNEL(formula, config, broadcast, __VA_ARGS__)
