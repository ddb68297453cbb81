// The products of cuda/weight_norm/split.cuh, computed by one warpgroup.
#pragma once

#include "cuda/weight_norm/split_fragments.cuh"
#include "cuda/weight_norm/split_memory.cuh"
#include "cuda/weight_norm/split_producer.cuh"
#include "cuda/wgmma.cuh"

namespace dorajit::kernels {

template <WeightNormConfig kConfig, ElementType... kTypes>
struct SplitProducts : SplitShape {
  using Op = WeightNormOperands<kTypes...>;
  using LoraA = Element<Op::kType[Op::kLoraA]>;
  using Producer = SplitProducer<kConfig, kTypes...>;
  static_assert(kColumns == kWgmmaColumns, "a tile must be as wide as an instruction");

  using Products = float[kColumns / 2];

  // The small terms are added first, so that truncation loses little of them.
  template <int kSteps>
  static __device__ __forceinline__ void multiply_steps(unsigned long long factor,
                                                        unsigned long long tile,
                                                        Products& products) {
    keep_in_registers(products);
    begin_products();
#pragma unroll
    for (int term = 0; term < 3; ++term) {
      const unsigned long long left = factor + (term == 0 ? kFactorHalf / 16 : 0);
      const unsigned long long right = tile + (term == 1 ? kTileHalf / 16 : 0);
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
        multiply_tiles<ElementType::kFloat16>(products, left + i * 2, right + i * kRowBytes,
                                              term + i > 0);
      }
    }
    commit_products();
    keep_in_registers(products);
  }

  static __device__ __forceinline__ void start_products(unsigned factor, unsigned tile, int steps,
                                                        Products& products) {
    const unsigned long long left = describe_tile(factor, 16);
    const unsigned long long right = describe_tile(tile, kDepth * kRowBytes);
    if (steps == 4) {
      multiply_steps<4>(left, right, products);
    } else if (steps == 1) {
      multiply_steps<1>(left, right, products);
    } else if (steps == 2) {
      multiply_steps<2>(left, right, products);
    } else {
      multiply_steps<3>(left, right, products);
    }
  }

  // sum + products * 2^exponents, for the two rows of the lane. A power of two beyond fp32 is
  // applied in two steps; if that makes a difference, the product exceeds fp32 as well.
  static __device__ __forceinline__ void add_block(const int (&exponents)[2], Products& products,
                                                   Products& sum) {
    float scale[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      int rest = exponents[h];
      if (rest > 127 || rest < -126) {
        const int first = rest > 0 ? 100 : -100;
#pragma unroll
        for (int i = 0; i < kColumns / 2; ++i) {
          if (i / 2 % 2 == h) products[i] = products[i] * power_of_two(first);
        }
        rest -= first;
      }
      scale[h] = power_of_two(rest < -126 ? -126 : rest);
    }
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) {
      sum[i] = fused_multiply_add(products[i], scale[i / 2 % 2], sum[i]);
    }
  }

  // Multiplies the block in fp32, from global memory.
  static __device__ __forceinline__ void add_unsplit_block(const KernelArguments& arguments,
                                                           const Task& task, int tile, int block,
                                                           Products& sum) {
    const OperandArgument& operand = arguments.operands[Op::kLoraA];
    const int row = threadIdx.x % kGroupThreads / 32 * 16 + threadIdx.x % 32 / 4;
    const long long column = static_cast<long long>(tile) * kColumns + threadIdx.x % 4 * 2;
    const long long left = arguments.sizes[kNormColumns] - column;
    const int last = task.rank < (block + 1) * kDepth ? task.rank : (block + 1) * kDepth;
    Products products = {};
#pragma unroll 1
    for (int k = block * kDepth; k < last; ++k) {
      const auto* const from =
          static_cast<const typename LoraA::Bits*>(operand.data) + k * operand.row_stride + column;
      const float factors[2] = {Producer::factor_at(arguments, task, row, k),
                                Producer::factor_at(arguments, task, row + 8, k)};
#pragma unroll
      for (int i = 0; i < kColumns / 8; ++i) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const float value = 8 * i + e < left ? LoraA::widen(from[8 * i + e]) : 0.0F;
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            const int at = 4 * i + 2 * h + e;
            products[at] = fused_multiply_add(factors[h], value, products[at]);
          }
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) sum[i] = sum[i] + products[i];
  }

  // Computes a tile of B A.
  static __device__ __forceinline__ void multiply_tile(const KernelArguments& arguments,
                                                       const Task& task, const Memory& memory,
                                                       int tile, PipelineState<kConfig.stages>& at,
                                                       Products& sum) {
    const int row = threadIdx.x % kGroupThreads / 32 * 16 + threadIdx.x % 32 / 4;
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) sum[i] = 0;
#pragma unroll 1
    for (int block = 0; block < task.blocks(); ++block) {
      const unsigned of_rows = memory.row_exponents(block, at.index) + row * 4;
      const int steps = task.steps(block);
      memory.stages().wait(at);
      // If the tile was not split, these products are computed but not used.
      Products products;
      start_products(memory.factor(block, at.index), memory.stage(at.index), steps, products);
      const int exponent = load_word(memory.tile_exponent(at.index));
      const int exponents[2] = {exponent - 2 * kSplitTop + load_word(of_rows),
                                exponent - 2 * kSplitTop + load_word(of_rows + 32)};
      wait_for_products<0>();
      keep_in_registers(products);
      memory.stages().empty(at.index).arrive();
      __syncwarp();
      if (threadIdx.x % 32 == 0) memory.stages().empty(at.index).arrive_in_pair(memory.peer);
      if (exponent != kUnsplit) {
        add_block(exponents, products, sum);
      } else {
        add_unsplit_block(arguments, task, tile, block, sum);
      }
      at.advance();
    }
  }
};

}  // namespace dorajit::kernels
