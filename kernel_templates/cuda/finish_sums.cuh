// The second stage of a sum: adds the partial sums of each channel up the same tree.
//
// A program finishes a warp's width of channels; each of its lanes adds a run of consecutive
// partial sums. A separate launch orders it after the first stage, so it needs no atomics.
#pragma once

#include "cuda/broadcast_values.cuh"
#include "cuda/dependent_launch.cuh"
#include "math/finished_sum.h"
#include "math/pairwise_sum.h"

namespace dorajit::kernels {

inline constexpr int kFinishLevels = 24;  // 2^24 partial sums per lane: 2^37 rows and more

// Adding to zero turns the sum of no terms, and of negative zeros, into +0, as a loop from 0 does.
template <class Op>
__device__ __forceinline__ void put_final_sum(const KernelArguments& arguments, long long channel,
                                              typename Op::T sum) {
  using T = typename Op::T;
  constexpr ElementType kElement = Op::kType[Op::kFirstSum];
  using Bits = typename Element<kElement>::Bits;
  auto* const to = static_cast<Bits*>(arguments.operands[Op::kFirstSum].data) + channel;
  if constexpr (FinishesSums<typename Op::F, T>) {
    RowValues<Op> values;
    values.load(arguments, channel);
    const typename Op::F formula(arguments.scalars);
    *to = Element<kElement>::narrow(finished_sum(formula, T(0) + sum, values.value));
  } else {
    *to = Element<kElement>::narrow(T(0) + sum);
  }
}

// Writes partial sum number `index` of the channel to the output or to the workspace.
template <class Op>
__device__ __forceinline__ void put_sum(const KernelArguments& arguments, const SumLayout& layout,
                                        long long index, long long channel, typename Op::T sum) {
  if (layout.count() == 1) {
    put_final_sum<Op>(arguments, channel, sum);
  } else {
    static_cast<typename Op::T*>(
        arguments.workspace)[index * arguments.sizes[kChannels] + channel] = sum;
  }
}

template <template <class> class Formula, StreamingConfig kConfig, Broadcast kBroadcast,
          ElementType... kTypes>
struct FinishSumsKernel {
  using Op = Operands<Formula, kConfig, kTypes...>;
  using T = typename Op::T;

  // The node above leaves [first, first + count). Rows of spans are padded to a power of two.
  static __device__ __forceinline__ T sum_leaves(const KernelArguments& arguments,
                                                 const SumLayout& layout, long long channel,
                                                 long long first, long long count, int span_bits) {
    const T* partial_sums = static_cast<const T*>(arguments.workspace);
    PairwiseSum<T, kFinishLevels> sum;
    T node[1] = {absent_term<T>()};
#pragma unroll 4
    for (long long i = 0; i < count; ++i) {
      const long long group = (first + i) >> span_bits;
      const long long span = (first + i) - (group << span_bits);
      node[0] = absent_term<T>();
      if (group < layout.row_groups && span < layout.spans) {
        node[0] =
            partial_sums[(group * layout.spans + span) * arguments.sizes[kChannels] + channel];
      }
      sum.push(i, node);
    }
    return node[0];
  }

  static __device__ __forceinline__ void run(const KernelArguments& arguments) {
    __shared__ T nodes[kFinishLanes][kChannelsPerFinish];
    const SumLayout layout = sum_layout(kBroadcast, arguments.sizes[kRows], arguments.sizes[kCols],
                                        arguments.sizes[kChannels], kConfig.rows_per_program);
    int span_bits = 0;
    while ((1LL << span_bits) < layout.spans) ++span_bits;
    const long long leaves = power_of_two_up(layout.row_groups) << span_bits;
    const long long per_lane = leaves < kFinishLanes ? 1 : leaves / kFinishLanes;
    const int column = threadIdx.x % kChannelsPerFinish;
    const int lane = threadIdx.x / kChannelsPerFinish;
    const long long stride = static_cast<long long>(gridDim.x) * kChannelsPerFinish;
    wait_for_first_stage();
    for (long long first = static_cast<long long>(blockIdx.x) * kChannelsPerFinish;
         first < arguments.sizes[kChannels]; first += stride) {
      const long long channel = first + column;
      if (channel < arguments.sizes[kChannels]) {
        nodes[lane][column] =
            sum_leaves(arguments, layout, channel, lane * per_lane, per_lane, span_bits);
      }
      __syncthreads();
      if (lane == 0 && channel < arguments.sizes[kChannels]) {
        T lanes[kFinishLanes];
#pragma unroll
        for (int i = 0; i < kFinishLanes; ++i) lanes[i] = nodes[i][column];
        put_final_sum<Op>(arguments, channel, sum_of_neighbours<kFinishLanes>(lanes));
      }
      __syncthreads();
    }
  }
};

}  // namespace dorajit::kernels

#define DORAJIT_FINISH_SUMS_KERNEL(formula, config, broadcast, ...)                              \
  extern "C" __global__ void __launch_bounds__(                                                  \
      dorajit::kernels::kFinishLanes* dorajit::kernels::kChannelsPerFinish)                      \
      dorajit_finish(const __grid_constant__ dorajit::kernels::KernelArguments arguments) {      \
    dorajit::kernels::FinishSumsKernel<formula, config, broadcast, __VA_ARGS__>::run(arguments); \
  }
