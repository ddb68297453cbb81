// weight_norm with multiply-adds in the compute type, for all element types and any GPU.
//
// A thread computes four rows, 16 apart, and the columns of one chain: every eighth of a tile.
#pragma once

#include "cuda/async_copy.cuh"
#include "cuda/weight_norm/rows.cuh"
#include "weight_norm_config.h"

namespace dorajit::kernels {

template <WeightNormConfig kConfig, ElementType... kTypes>
struct WeightNormScalar {
  using Op = WeightNormOperands<kTypes...>;
  using T = typename Op::T;

  static constexpr int kRowsOfThread = 4;
  static constexpr int kRowGroups = kConfig.rows / kRowsOfThread;
  static constexpr int kThreads = kRowGroups * kNormChains;
  static constexpr int kColumnsOfThread = kConfig.columns / kNormChains;
  static constexpr int kStep = kConfig.rank_step;

  template <int kOperand>
  static __device__ __forceinline__ T load(const KernelArguments& arguments, long long row,
                                           long long column, long long rows, long long columns) {
    if (row >= rows || column >= columns) return T(0);
    const OperandArgument& operand = arguments.operands[kOperand];
    using Stored = Element<Op::kType[kOperand]>;
    return Stored::widen(
        static_cast<const typename Stored::Bits*>(operand.data)[row * operand.row_stride + column]);
  }

  static __device__ __forceinline__ void run(const KernelArguments& arguments, const TensorMap&,
                                             const TensorMap&, const TensorMap&) {
    __shared__ T tile_a[kStep][kConfig.columns];
    __shared__ T tile_b[kStep][kConfig.rows + 1];
    const long long rows = arguments.sizes[kNormRows];
    const long long columns = arguments.sizes[kNormColumns];
    const T scale = static_cast<T>(arguments.scalars[0]);
    const long long rank = scale == T(0) ? 0 : arguments.sizes[kNormRank];
    const NormParts parts = norm_parts(columns, kConfig.max_parts);
    const int chain = threadIdx.x % kNormChains;
    const int group = threadIdx.x / kNormChains;
    const long long first_row = static_cast<long long>(blockIdx.x) * kConfig.rows;
    const long long first_column = blockIdx.y * parts.columns();
    const long long last_column =
        first_column + parts.columns() < columns ? first_column + parts.columns() : columns;
    let_second_stage_start();
    const int kept = chain % kRowsOfThread;  // the thread's row whose span sums it keeps
    SpanSums<T, 1> spans;
    T chains[kRowsOfThread] = {};
    for (long long column = first_column; column < last_column; column += kConfig.columns) {
      T products[kRowsOfThread][kColumnsOfThread] = {};
      T block[kRowsOfThread][kColumnsOfThread] = {};
      for (long long k = 0; k < rank; k += kStep) {
        __syncthreads();
        for (int i = threadIdx.x; i < kStep * kConfig.columns; i += kThreads) {
          tile_a[i / kConfig.columns][i % kConfig.columns] = load<kNormLoraA>(
              arguments, k + i / kConfig.columns, column + i % kConfig.columns, rank, columns);
        }
        for (int i = threadIdx.x; i < kStep * kConfig.rows; i += kThreads) {
          tile_b[i % kStep][i / kStep] =
              load<kNormLoraB>(arguments, first_row + i / kStep, k + i % kStep, rows, rank);
        }
        __syncthreads();
#pragma unroll
        for (int step = 0; step < kStep; ++step) {
          T left[kRowsOfThread];
#pragma unroll
          for (int r = 0; r < kRowsOfThread; ++r) left[r] = tile_b[step][group + r * kRowGroups];
#pragma unroll
          for (int c = 0; c < kColumnsOfThread; ++c) {
            const T right = tile_a[step][chain + c * kNormChains];
#pragma unroll
            for (int r = 0; r < kRowsOfThread; ++r) {
              block[r][c] = fused_multiply_add(left[r], right, block[r][c]);
            }
          }
        }
        if ((k + kStep) % kNormRankBlock == 0 || k + kStep >= rank) {
#pragma unroll
          for (int r = 0; r < kRowsOfThread; ++r) {
#pragma unroll
            for (int c = 0; c < kColumnsOfThread; ++c) {
              products[r][c] = products[r][c] + block[r][c];
              block[r][c] = 0;
            }
          }
        }
      }
#pragma unroll
      for (int r = 0; r < kRowsOfThread; ++r) {
#pragma unroll
        for (int c = 0; c < kColumnsOfThread; ++c) {
          const T weight = load<kNormWeight>(arguments, first_row + group + r * kRowGroups,
                                             column + chain + c * kNormChains, rows, columns);
          chains[r] = add_to_chain(scale, products[r][c], weight, chains[r]);
        }
      }
      if ((column + kConfig.columns) % kNormSpan == 0 || column + kConfig.columns >= last_column) {
        T node[1] = {};
#pragma unroll
        for (int r = 0; r < kRowsOfThread; ++r) {
          T sum = chains[r];
#pragma unroll
          for (int distance = 1; distance < kNormChains; distance *= 2) {
            sum = sum + __shfl_xor_sync(0xffffffffu, sum, distance);
          }
          if (r == kept) node[0] = sum;
          chains[r] = 0;
        }
        spans.push(node);
      }
    }
    T root[1];
    spans.root(root);
    const long long row = first_row + group + kept * kRowGroups;
    if (chain < kRowsOfThread && row < rows) {
      Op::finish_part(arguments, parts, blockIdx.y, row, root[0]);
    }
  }
};

}  // namespace dorajit::kernels
