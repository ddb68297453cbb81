// The second stage of sums: adds the partial sums of each channel up the same tree.
//
// A program finishes a warp's width of channels; each of its lanes adds a run of consecutive
// partial sums. A separate launch orders it after the first stage, so it needs no atomics.
#pragma once

#include "cuda/broadcast_values.cuh"
#include "cuda/dependent_launch.cuh"
#include "math/evaluated_formula.h"
#include "math/pairwise_sum.h"

namespace dorajit::kernels {

inline constexpr int kFinishLevels = 24;  // 2^24 partial sums per lane: 2^37 rows and more

template <class Op, int kSum = 0>
__device__ __forceinline__ void store_sums(const KernelArguments& arguments, long long channel,
                                           const typename Op::T* sums) {
  if constexpr (kSum < Op::F::kSums) {
    constexpr int kOperand = Op::kFirstSum + kSum;
    using E = Element<Op::kType[kOperand]>;
    static_cast<typename E::Bits*>(arguments.operands[kOperand].data)[channel] =
        E::narrow(sums[kSum]);
    store_sums<Op, kSum + 1>(arguments, channel, sums);
  }
}

// Adding to zero turns the sum of no terms, and of negative zeros, into +0, as a loop from 0 does.
template <class Op>
__device__ __forceinline__ void put_final_sums(const KernelArguments& arguments, long long channel,
                                               typename Op::T* sums) {
  using T = typename Op::T;
#pragma unroll
  for (int s = 0; s < Op::F::kSums; ++s) sums[s] = T(0) + sums[s];
  if constexpr (FinishesSums<typename Op::F, T>) {
    RowValues<Op> values;
    values.load(arguments, channel);
    finish_sums(typename Op::F(arguments.scalars), sums, values.value);
  }
  store_sums<Op>(arguments, channel, sums);
}

// Writes partial sums number `index` of the channel to the outputs or to the workspace.
template <class Op>
__device__ __forceinline__ void put_sums(const KernelArguments& arguments, const SumLayout& layout,
                                         long long index, long long channel, typename Op::T* sums) {
  if (layout.count() == 1) {
    put_final_sums<Op>(arguments, channel, sums);
  } else {
#pragma unroll
    for (int s = 0; s < Op::F::kSums; ++s) {
      static_cast<typename Op::T*>(
          arguments.workspace)[(index * Op::F::kSums + s) * arguments.sizes[kChannels] + channel] =
          sums[s];
    }
  }
}

template <template <class> class Formula, StreamingConfig kConfig, Broadcast kBroadcast,
          ElementType... kTypes>
struct FinishSumsKernel {
  using Op = Operands<Formula, kConfig, kTypes...>;
  using T = typename Op::T;

  // The nodes above leaves [first, first + count). Rows of spans are padded to a power of two.
  static __device__ __forceinline__ void sum_leaves(const KernelArguments& arguments,
                                                    const SumLayout& layout, long long channel,
                                                    long long first, long long count, int span_bits,
                                                    T (&node)[Op::F::kSums]) {
    const T* partial_sums = static_cast<const T*>(arguments.workspace);
    PairwiseSum<T, kFinishLevels, Op::F::kSums> sum;
#pragma unroll
    for (int s = 0; s < Op::F::kSums; ++s) node[s] = absent_term<T>();
#pragma unroll 4
    for (long long i = 0; i < count; ++i) {
      const long long group = (first + i) >> span_bits;
      const long long span = (first + i) - (group << span_bits);
#pragma unroll
      for (int s = 0; s < Op::F::kSums; ++s) {
        node[s] = absent_term<T>();
        if (group < layout.row_groups && span < layout.spans) {
          const long long index = (group * layout.spans + span) * Op::F::kSums + s;
          node[s] = partial_sums[index * arguments.sizes[kChannels] + channel];
        }
      }
      sum.push(i, node);
    }
  }

  static __device__ __forceinline__ void run(const KernelArguments& arguments) {
    __shared__ T nodes[kFinishLanes][Op::F::kSums][kChannelsPerFinish];
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
        T node[Op::F::kSums];
        sum_leaves(arguments, layout, channel, lane * per_lane, per_lane, span_bits, node);
#pragma unroll
        for (int s = 0; s < Op::F::kSums; ++s) nodes[lane][s][column] = node[s];
      }
      __syncthreads();
      if (lane == 0 && channel < arguments.sizes[kChannels]) {
        T sums[Op::F::kSums];
#pragma unroll
        for (int s = 0; s < Op::F::kSums; ++s) {
          T lanes[kFinishLanes];
#pragma unroll
          for (int i = 0; i < kFinishLanes; ++i) lanes[i] = nodes[i][s][column];
          sums[s] = sum_of_neighbours<kFinishLanes>(lanes);
        }
        put_final_sums<Op>(arguments, channel, sums);
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
