// Kernels with sums per channel if the channels lie along the rows: [1, C, 1, 1] over
// [N, C, H, W], where a row is one channel of one sample.
//
// A group of lanes of one warp computes one partial sum (partial_sums.h): some samples of a
// channel, or a span of the columns of one. The lanes lie side by side along the columns. Shuffles
// add their terms up the tree; PairwiseSum adds the passes over the columns and the samples.
#pragma once

#include "cuda/broadcast_values.cuh"
#include "cuda/finish_sums.cuh"
#include "math/pairwise_sum.h"

namespace dorajit::kernels {

template <template <class> class Formula, StreamingConfig kConfig, ElementType... kTypes>
struct RowSumsKernel : Operands<Formula, kConfig, kTypes...> {
  using Op = Operands<Formula, kConfig, kTypes...>;
  using Op::kThreads;
  using Op::kUnroll;
  using Op::kWidth;
  using typename Op::F;
  using typename Op::Inputs;
  using typename Op::Outputs;
  using typename Op::T;

  static_assert(is_valid_for_cuda_row_sums(kConfig),
                "block_size / vector_width lanes must be a power of two within a warp, and "
                "rows_per_program the number of such groups");
  static_assert(F::kSums > 0);

  static constexpr int kLanes = kConfig.block_size / kWidth;
  // Tree levels over the passes of a span and the samples of a partial sum: at most 4096 of each.
  static constexpr int kLevels = 13;
  static_assert(kPartialColumns < (1 << kLevels) && kMinPartialTerms < (1 << kLevels));

  static __device__ __forceinline__ unsigned group_mask(int lane_of_warp) {
    if constexpr (kLanes == kThreadsPerWarp) return 0xffffffffu;
    return ((1u << (kLanes % kThreadsPerWarp)) - 1u) << (lane_of_warp / kLanes * kLanes);
  }

  using Sum = PairwiseSum<T, kLevels, F::kSums>;

  // The node above one pass, which is kLanes vectors side by side.
  static __device__ __forceinline__ T sum_pass(const T* terms, unsigned mask) {
    T node = sum_of_neighbours<kWidth>(terms);
#pragma unroll
    for (int distance = 1; distance < kLanes; distance *= 2) {
      node = node + __shfl_xor_sync(mask, node, distance);
    }
    return node;
  }

  // Computes kPasses passes from `col` on, this lane's first column; `remaining` counts from `col`.
  template <int kPasses, bool kWhole>
  static __device__ __forceinline__ void run_passes(const KernelArguments& arguments,
                                                    const F& formula, const RowValues<Op>& values,
                                                    long long row, long long col,
                                                    long long remaining, unsigned mask,
                                                    long long pass, Sum& sum) {
    Inputs inputs[kPasses];
#pragma unroll
    for (int p = 0; p < kPasses; ++p) {
      inputs[p].load(arguments, row, col + p * kConfig.block_size,
                     kWhole ? kWidth : remaining - p * kConfig.block_size);
    }
#pragma unroll
    for (int p = 0; p < kPasses; ++p) {
      const long long left = kWhole ? kWidth : remaining - p * kConfig.block_size;
      Outputs outputs;
      T terms[F::kSums][kWidth];
      Op::evaluate(
          formula, inputs[p], [&](int) -> const T* { return values.value; }, outputs,
          [&](int i, const T(&output)[F::kOutputs]) {
#pragma unroll
            for (int s = 0; s < F::kSums; ++s) {
              terms[s][i] =
                  kWhole || i < left ? output[F::kOutputs - F::kSums + s] : absent_term<T>();
            }
          });
      outputs.store(arguments, row, col + p * kConfig.block_size, left);
      T node[F::kSums];
#pragma unroll
      for (int s = 0; s < F::kSums; ++s) node[s] = sum_pass(terms[s], mask);
      sum.push(pass + p, node);
    }
  }

  // The nodes above columns [first_col, last_col) of a row.
  static __device__ __forceinline__ void sum_row(const KernelArguments& arguments, const F& formula,
                                                 const RowValues<Op>& values, long long row,
                                                 long long first_col, long long last_col, int lane,
                                                 unsigned mask, T (&node)[F::kSums]) {
    Sum sum;
    long long pass = 0;
    long long col = first_col;
#pragma unroll 1
    for (; col + kUnroll * kConfig.block_size <= last_col; col += kUnroll * kConfig.block_size) {
      run_passes<kUnroll, true>(arguments, formula, values, row, col + lane * kWidth, kWidth, mask,
                                pass, sum);
      pass += kUnroll;
    }
#pragma unroll 1
    for (; col < last_col; col += kConfig.block_size) {
      run_passes<1, false>(arguments, formula, values, row, col + lane * kWidth,
                           last_col - col - lane * kWidth, mask, pass, sum);
      ++pass;
    }
    sum.root(pass, node);
  }

  static __device__ __forceinline__ void run_task(const KernelArguments& arguments,
                                                  const F& formula, const SumLayout& layout,
                                                  long long task, int lane, unsigned mask) {
    const long long channels = arguments.sizes[kChannels];
    const long long channel = channel_of_row(task, channels);
    const long long index = task / channels;
    const long long span = channel_of_row(index, layout.spans);
    const long long group = index / layout.spans;
    const long long samples = arguments.sizes[kRows] / channels;
    const long long first_sample = group * layout.rows_per_partial;
    long long last_sample = first_sample + layout.rows_per_partial;
    if (last_sample > samples) last_sample = samples;
    const long long first_col = span * kPartialColumns;
    long long last_col = first_col + kPartialColumns;
    if (last_col > arguments.sizes[kCols]) last_col = arguments.sizes[kCols];

    RowValues<Op> values;
    values.load(arguments, channel);
    Sum sum;
#pragma unroll 1
    for (long long sample = first_sample; sample < last_sample; ++sample) {
      T node[F::kSums];
      sum_row(arguments, formula, values, sample * channels + channel, first_col, last_col, lane,
              mask, node);
      sum.push(sample - first_sample, node);
    }
    T root[F::kSums];
    sum.root(last_sample - first_sample, root);
    if (lane == 0) put_sums<Op>(arguments, layout, index, channel, root);
  }

  static __device__ __forceinline__ void run(const KernelArguments& arguments) {
    const F formula(arguments.scalars);
    const SumLayout layout =
        sum_layout(Broadcast::kPerRow, arguments.sizes[kRows], arguments.sizes[kCols],
                   arguments.sizes[kChannels], kConfig.rows_per_program);
    const int lane = threadIdx.x % kLanes;
    const unsigned mask = group_mask(threadIdx.x % kThreadsPerWarp);
    const long long tasks = layout.count() * arguments.sizes[kChannels];
    const long long stride = static_cast<long long>(gridDim.x) * kConfig.rows_per_program;
    let_second_stage_start();
    for (long long task =
             static_cast<long long>(blockIdx.x) * kConfig.rows_per_program + threadIdx.x / kLanes;
         task < tasks; task += stride) {
      run_task(arguments, formula, layout, task, lane, mask);
    }
  }
};

}  // namespace dorajit::kernels

// The code that is generated per kernel. `config` is in parentheses.
#define DORAJIT_ROW_SUMS_KERNEL(formula, config, broadcast, ...)                            \
  static_assert(broadcast == dorajit::kernels::Broadcast::kPerRow);                         \
  extern "C" __global__ void __launch_bounds__(                                             \
      config.num_warps* dorajit::kernels::kThreadsPerWarp, 1)                               \
      dorajit_kernel(const __grid_constant__ dorajit::kernels::KernelArguments arguments) { \
    dorajit::kernels::RowSumsKernel<formula, config, __VA_ARGS__>::run(arguments);          \
  }                                                                                         \
  DORAJIT_FINISH_SUMS_KERNEL(formula, config, broadcast, __VA_ARGS__)
