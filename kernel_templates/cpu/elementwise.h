// Elementwise kernels on the CPU: the counterpart of cuda/elementwise.cuh.
//
// Programs are numbered with columns fastest; a worker runs a range of them.
#pragma once

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "cpu/operands.h"

namespace dorajit::kernels {

// Copies `bytes` with stores that bypass the caches, if machine and addresses allow it.
inline void stream_out(void* destination, const void* source, long long bytes) {
  char* to = static_cast<char*>(destination);
  const char* from = static_cast<const char*>(source);
  long long i = 0;
#ifdef __SSE2__
  while (i < bytes && reinterpret_cast<unsigned long long>(to + i) % 16 != 0) {
    to[i] = from[i];
    ++i;
  }
  for (; i + 16 <= bytes; i += 16) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
  }
#endif
  for (; i < bytes; ++i) to[i] = from[i];
}

inline void finish_streaming() {
#ifdef __SSE2__
  _mm_sfence();
#endif
}

template <class Spans, StreamingConfig kConfig, Broadcast kBroadcast>
struct ElementwisePrograms {
  static_assert(is_valid_for_cpu(kConfig), "CPU configs have vector_width 1 and unroll 1");

  using F = typename Spans::F;
  using T = typename Spans::T;
  using Order = typename Spans::Order;

  static constexpr bool kStream = kConfig.cache_policy == CachePolicy::kStreamAll;
  static constexpr long long kTile = 512;

  static void run_row(const Spans& spans, const KernelArguments& arguments, const F& formula,
                      long long row, long long first_col, long long last_col) {
    if constexpr (!kStream) {
      spans.run(formula, point_at<kBroadcast>(spans, arguments, row, first_col),
                last_col - first_col, {});
    } else {
      alignas(64) T tile[Order::kStored][kTile];
      for (long long col = first_col; col < last_col; col += kTile) {
        const long long count = last_col - col < kTile ? last_col - col : kTile;
        const auto places = point_at<kBroadcast>(spans, arguments, row, col);
        auto pointers = places;
        for (int i = 0; i < Order::kStored; ++i) pointers.data[Order::kFirstOutput + i] = tile[i];
        spans.run(formula, pointers, count, {});
        for (int i = Order::kFirstOutput; i < Order::kFirstSum; ++i) {
          if (places.data[i] == nullptr) continue;
          stream_out(places.data[i], pointers.data[i], count * spans.element_size(i));
        }
      }
    }
  }

  static void run(const Spans& spans, const KernelArguments& arguments, long long first_program,
                  long long last_program) {
    const F formula(arguments.scalars);
    const long long column_blocks =
        (arguments.sizes[kCols] + kConfig.block_size - 1) / kConfig.block_size;
    for (long long program = first_program; program < last_program; ++program) {
      const long long first_col = program % column_blocks * kConfig.block_size;
      const long long first_row = program / column_blocks * kConfig.rows_per_program;
      const long long last_col = first_col + kConfig.block_size < arguments.sizes[kCols]
                                     ? first_col + kConfig.block_size
                                     : arguments.sizes[kCols];
      const long long last_row = first_row + kConfig.rows_per_program < arguments.sizes[kRows]
                                     ? first_row + kConfig.rows_per_program
                                     : arguments.sizes[kRows];
      for (long long row = first_row; row < last_row; ++row) {
        run_row(spans, arguments, formula, row, first_col, last_col);
      }
    }
    if constexpr (kStream) finish_streaming();
  }
};

}  // namespace dorajit::kernels

// The code that is generated per kernel. `config` is in parentheses.
#define DORAJIT_ELEMENTWISE_KERNEL(formula, config, broadcast, ...)                \
  extern "C" __attribute__((visibility("default"))) void dorajit_kernel(           \
      const dorajit::kernels::KernelArguments* arguments, long long first_program, \
      long long last_program) {                                                    \
    using Spans = dorajit::kernels::TypedSpans<formula, broadcast, __VA_ARGS__>;   \
    dorajit::kernels::ElementwisePrograms<Spans, config, broadcast>::run(          \
        Spans{}, *arguments, first_program, last_program);                         \
  }
