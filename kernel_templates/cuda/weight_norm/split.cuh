// weight_norm with wgmma for f32 and mixed factors: sm_90a.
//
// Programs form pairs, with 64 rows each. Both programs multiply the same tiles of A: 64 of the
// rank by 128 columns. Warpgroups of both programs take turns to load a tile, scale it by a power
// of two, write it to a ring in shared memory as pairs of float16, high and low, and copy it to the
// other program. A third warpgroup of each program multiplies the tiles by its rows of B, which are
// split in the same way, with a scale for each row and each 64 of the rank: low * high, high * low
// and high * high. It scales the sums of a block of the rank back as it adds them, then adds W,
// squares and sums in registers.
//
// The error of a pair of float16 is up to 2^-39 of the greatest magnitude of its tile. If the rows
// of a tile differ so much that this error could show in the norm, or if the tile has an infinity
// or NaN, the block is multiplied in fp32 instead.
//
// Copies to the other program go through cp.async.bulk: stores with arrivals of cluster scope took
// 1.8 times as long (H100), because such arrivals wait for all that is in flight. At rank 384
// loading W by cp.async or by the copy engine is slower than to registers, too.
#pragma once

#include "cuda/weight_norm/epilogue.cuh"
#include "cuda/weight_norm/rows.cuh"
#include "cuda/weight_norm/split_memory.cuh"
#include "cuda/weight_norm/split_producer.cuh"
#include "cuda/weight_norm/split_products.cuh"
#include "cuda/wgmma.cuh"
#include "weight_norm_config.h"

namespace dorajit::kernels {

template <WeightNormConfig kConfig, ElementType... kTypes>
struct WeightNormSplit : SplitShape {
  using Op = WeightNormOperands<kTypes...>;
  using Weight = Element<Op::kType[Op::kWeight]>;
  using NormSums = NormFragments<2>;
  using Producer = SplitProducer<kConfig, kTypes...>;
  using Multiplier = SplitProducts<kConfig, kTypes...>;

  static_assert(kConfig.rows == kRows && kConfig.columns == kColumns &&
                kConfig.rank_step == kDepth && kConfig.stages == kSplitStages);
  static constexpr int kThreads = (1 + kSplitters) * kGroupThreads;
  static constexpr ElementType kWeightType = Op::kType[Op::kWeight];
  static constexpr int kTilesAhead = 4;  // tiles of W being prefetched into the L2 cache
  // Whether there are registers for a tile of W while products are in flight.
  static constexpr bool kLoadsEarly =
      size_in_bytes(kWeightType) == 2 || size_in_bytes(Op::kType[Op::kLoraA]) == 4;

  using Weights = WeightFragments<kWeightType, 1, kColumns>;

  static __device__ __forceinline__ void load_weights(const KernelArguments& arguments,
                                                      const Task& task, int tile,
                                                      Weights& weights) {
    const long long first_column = static_cast<long long>(tile) * kColumns;
    const bool is_whole = task.first_row + kRows <= arguments.sizes[kNormRows] &&
                          first_column + kColumns <= arguments.sizes[kNormColumns];
    weights.load(arguments, arguments.operands[Op::kWeight],
                 task.first_row + threadIdx.x % kGroupThreads / 32 * 16 + threadIdx.x % 32 / 4,
                 first_column + threadIdx.x % 4 * 2, is_whole && kConfig.vector_width >= 2);
  }

  // Prefetches a tile of W, in lines of 128 bytes.
  static __device__ __forceinline__ void prefetch_weights(const KernelArguments& arguments,
                                                          const Task& task, int tile) {
    constexpr int kSize = size_in_bytes(kWeightType);
    constexpr int kLines = kColumns * kSize / 128;  // per row
    const OperandArgument& operand = arguments.operands[Op::kWeight];
#pragma unroll
    for (int i = threadIdx.x % kGroupThreads; i < kRows * kLines; i += kGroupThreads) {
      const long long row = task.first_row + i / kLines;
      const long long column = static_cast<long long>(tile) * kColumns + i % kLines * 128 / kSize;
      if (tile < task.last_tile && row < arguments.sizes[kNormRows] &&
          column < arguments.sizes[kNormColumns]) {
        asm volatile("prefetch.global.L2 [%0];" ::"l"(
            static_cast<const typename Weight::Bits*>(operand.data) + row * operand.row_stride +
            column));
      }
    }
  }

  static __device__ __forceinline__ void sum_rows(const KernelArguments& arguments,
                                                  const NormParts& parts, const Task& task,
                                                  const Memory& memory) {
    const float scale = static_cast<float>(arguments.scalars[0]);
    PipelineState<kConfig.stages> at;
    NormSums sums;
    typename Multiplier::Products products = {};
    for (int i = 1; i < kTilesAhead; ++i) prefetch_weights(arguments, task, task.first_tile + i);
#pragma unroll 1
    for (int tile = task.first_tile; tile < task.last_tile; ++tile) {
      Weights weights;
      if constexpr (kLoadsEarly) load_weights(arguments, task, tile, weights);
      prefetch_weights(arguments, task, tile + kTilesAhead);
      if (task.rank > 0) Multiplier::multiply_tile(arguments, task, memory, tile, at, products);
      if constexpr (!kLoadsEarly) load_weights(arguments, task, tile, weights);
#pragma unroll
      for (int i = 0; i < kColumns / 8; ++i) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const float found[2] = {products[4 * i + 2 * h], products[4 * i + 2 * h + 1]};
          const float wide[2] = {weights.get(0, h, i, 0), weights.get(0, h, i, 1)};
          sums.add(h, scale, found, wide);
        }
      }
      if ((tile + 1) * kColumns % kNormSpan == 0 || tile + 1 == task.last_tile) sums.end_span();
    }
    const long long row =
        task.first_row + threadIdx.x % kGroupThreads / 32 * 16 + NormSums::kept_place();
    if (NormSums::stores() && row < arguments.sizes[kNormRows]) {
      Op::finish_part(arguments, parts, blockIdx.y, row, sums.root());
    }
  }

  static __device__ __forceinline__ void run(const KernelArguments& arguments, const TensorMap&,
                                             const TensorMap&, const TensorMap&) {
    extern __shared__ unsigned char shared[];
    const long long columns = arguments.sizes[kNormColumns];
    const NormParts parts = norm_parts(columns, kConfig.max_parts);
    const int tiles = static_cast<int>((columns + kColumns - 1) / kColumns);
    const int tiles_of_part = static_cast<int>(parts.columns() / kColumns);
    const int first_tile = static_cast<int>(blockIdx.y) * tiles_of_part;
    const int last_tile = first_tile + tiles_of_part;
    const Task task{static_cast<long long>(blockIdx.x) * kRows, first_tile,
                    last_tile < tiles ? last_tile : tiles,
                    static_cast<float>(arguments.scalars[0]) == 0.0F
                        ? 0
                        : static_cast<int>(arguments.sizes[kNormRank])};
    const Memory memory((shared_address(shared) + 1023) & ~1023U, task.rank);
    let_second_stage_start();
    if (threadIdx.x == 0) {
      memory.stages().initialise(memory.streams ? 1 + kGroupThreads : 1,
                                 kGroupThreads + kGroupThreads / 32);
      publish_barriers();
    }
    if (!memory.streams) {
      Producer::template split_factor<8>(arguments, task, memory, 0, task.blocks() * kRows, 0,
                                         threadIdx.x / 32, kThreads / 32);
      publish_shared_stores();
    }
    wait_for_pair();
    if (threadIdx.x < kGroupThreads) {
      take_registers<232>();
      sum_rows(arguments, parts, task, memory);
    } else {
      leave_registers<136>();
      if (task.rank > 0) {
        Producer::split_tiles(arguments, task, memory,
                              static_cast<int>(threadIdx.x) / kGroupThreads - 1);
      }
    }
    wait_for_pair();  // the other program may still write here
  }
};

}  // namespace dorajit::kernels
