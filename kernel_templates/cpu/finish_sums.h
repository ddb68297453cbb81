// The second stage of a sum on the CPU: adds the partial sums of each channel up the same tree.
#pragma once

#include "cpu/operands.h"
#include "cpu/tile_sums.h"
#include "math/finished_sum.h"

namespace dorajit::kernels {

// Adding to zero turns the sum of no terms, and of negative zeros, into +0, as a loop from 0 does.
template <class Spans>
inline void put_final_sum(const Spans& spans, const KernelArguments& arguments, long long channel,
                          typename Spans::T sum) {
  using T = typename Spans::T;
  using F = typename Spans::F;
  T total = T(0) + sum;
  if constexpr (FinishesSums<F, T>) {
    T broadcast[F::kBroadcastInputs];
    spans.load_broadcast(arguments, channel, broadcast);
    total = finished_sum(F(arguments.scalars), total, broadcast);
  }
  spans.put_sum(arguments, channel, total);
}

// Writes partial sum number `index` of a channel to its place.
template <class Spans>
inline void put_sum(const Spans& spans, const KernelArguments& arguments, const SumLayout& layout,
                    long long index, long long channel, typename Spans::T sum) {
  using T = typename Spans::T;
  if (layout.count() == 1) {
    put_final_sum(spans, arguments, channel, sum);
  } else {
    static_cast<T*>(arguments.workspace)[index * arguments.sizes[kChannels] + channel] = sum;
  }
}

template <class Spans, StreamingConfig kConfig, Broadcast kBroadcast>
struct FinishSums {
  using T = typename Spans::T;

  static constexpr int kTile = 64;
  static constexpr int kLevels = 48;

  // Runs programs [first_program, last_program), each of which finishes kChannelsPerFinish
  // channels.
  static void run(const Spans& spans, const KernelArguments& arguments, long long first_program,
                  long long last_program) {
    const long long channels = arguments.sizes[kChannels];
    const long long first = first_program * kChannelsPerFinish;
    const long long last =
        last_program * kChannelsPerFinish < channels ? last_program * kChannelsPerFinish : channels;
    const SumLayout layout = sum_layout(kBroadcast, arguments.sizes[kRows], arguments.sizes[kCols],
                                        arguments.sizes[kChannels], kConfig.rows_per_program);
    const T* partial_sums = static_cast<const T*>(arguments.workspace);
    for (long long channel = first; channel < last; channel += kTile) {
      const long long count = last - channel < kTile ? last - channel : kTile;
      TileSum<T, kLevels, kTile> groups;
      T node[kTile];
      for (long long group = 0; group < layout.row_groups; ++group) {
        TileSum<T, kLevels, kTile> row;
        for (long long span = 0; span < layout.spans; ++span) {
          const long long index = group * layout.spans + span;
          for (long long i = 0; i < count; ++i) {
            node[i] = partial_sums[index * arguments.sizes[kChannels] + channel + i];
          }
          row.push(span, node, count);
        }
        row.root(layout.spans, node, count);
        groups.push(group, node, count);
      }
      groups.root(layout.row_groups, node, count);
      for (long long i = 0; i < count; ++i) {
        put_final_sum(spans, arguments, channel + i, node[i]);
      }
    }
  }
};

}  // namespace dorajit::kernels

#define DORAJIT_FINISH_SUMS_KERNEL(formula, config, broadcast, ...)                           \
  extern "C" __attribute__((visibility("default"))) void dorajit_finish(                      \
      const dorajit::kernels::KernelArguments* arguments, long long first_program,            \
      long long last_program) {                                                               \
    using Spans = dorajit::kernels::TypedSpans<formula, broadcast, __VA_ARGS__>;              \
    dorajit::kernels::FinishSums<Spans, config, broadcast>::run(Spans{}, *arguments,          \
                                                                first_program, last_program); \
  }
