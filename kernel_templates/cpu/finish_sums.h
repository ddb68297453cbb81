// The second stage of sums on the CPU: adds the partial sums of each channel up the same tree.
#pragma once

#include "cpu/operands.h"
#include "cpu/tile_sums.h"

namespace dorajit::kernels {

// Adding to zero turns the sum of no terms, and of negative zeros, into +0, as a loop from 0 does.
template <class Spans>
inline void put_final_sums(const Spans& spans, const KernelArguments& arguments, long long channel,
                           typename Spans::T* sums) {
  using T = typename Spans::T;
  using F = typename Spans::F;
  for (int s = 0; s < F::kSums; ++s) sums[s] = T(0) + sums[s];
  if constexpr (FinishesSums<F, T>) {
    T broadcast[F::kBroadcastInputs];
    spans.load_broadcast(arguments, channel, broadcast);
    finish_sums(F(arguments.scalars), sums, broadcast);
  }
  spans.put_sums(arguments, channel, sums);
}

// Writes partial sums number `index` of a channel to their places.
template <class Spans>
inline void put_sums(const Spans& spans, const KernelArguments& arguments, const SumLayout& layout,
                     long long index, long long channel, typename Spans::T* sums) {
  constexpr int kSums = Spans::F::kSums;
  if (layout.count() == 1) {
    put_final_sums(spans, arguments, channel, sums);
  } else {
    auto* const to = static_cast<typename Spans::T*>(arguments.workspace) + channel;
    for (int s = 0; s < kSums; ++s) {
      to[(index * kSums + s) * arguments.sizes[kChannels]] = sums[s];
    }
  }
}

template <class Spans, StreamingConfig kConfig, Broadcast kBroadcast>
struct FinishSums {
  using T = typename Spans::T;

  static constexpr int kSums = Spans::F::kSums;
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
      T node[kSums][kTile];
      for (int s = 0; s < kSums; ++s) {
        TileSum<T, kLevels, kTile> groups;
        for (long long group = 0; group < layout.row_groups; ++group) {
          TileSum<T, kLevels, kTile> row;
          for (long long span = 0; span < layout.spans; ++span) {
            const T* from =
                partial_sums + channel + ((group * layout.spans + span) * kSums + s) * channels;
            for (long long i = 0; i < count; ++i) node[s][i] = from[i];
            row.push(span, node[s], count);
          }
          row.root(layout.spans, node[s], count);
          groups.push(group, node[s], count);
        }
        groups.root(layout.row_groups, node[s], count);
      }
      for (long long i = 0; i < count; ++i) {
        T sums[kSums];
        for (int s = 0; s < kSums; ++s) sums[s] = node[s][i];
        put_final_sums(spans, arguments, channel + i, sums);
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
