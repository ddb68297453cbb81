// Factors of weight_norm that are not of one 16-bit type, as sums of two float16, high and low,
// side by side in the rank: sm_80 and newer.
//
//     B A = [low(B) high(B) high(B)] [high(A); low(A); high(A)]
//
// low(B) low(A) is less than 2^-22 of the product and is left out. Row k of A is scaled by a power
// of two that takes its greatest magnitude to between 2^14 and 2^15; its inverse goes into column k
// of B. Row i of B is scaled in the same way then, and its inverse multiplies the products. So the
// terms that are greatest in a row of B A keep 39 bits, and all others as many less as they are
// smaller.
//
// Of the two stages before the kernel of the norm, the first finds the exponents of the rows of A,
// which a row of B needs all of, and the second writes both factors to the workspace. Splitting A
// in the first stage takes 3.8 us longer at rank 16 (H200): A's stores and B's loads wait then.
#pragma once

#include "cuda/weight_norm/rows.cuh"
#include "weight_norm_config.h"

namespace dorajit::kernels {

template <ElementType... kTypes>
struct FactorPairs {
  using Op = WeightNormOperands<kTypes...>;
  static constexpr int kTop = 14;  // the exponent of the greatest magnitude of a scaled row
  static constexpr int kWarps = kFactorPairThreads / 32;
  // Of zero: below that of any product, which is at least -298.
  static constexpr int kNothing = -1024;

  // 2^exponent, for exponents from -126 to 127.
  static __device__ __forceinline__ float power_of_two(int exponent) {
    return __uint_as_float(static_cast<unsigned>(exponent + 127) << 23);
  }
  static __device__ __forceinline__ int clamped(int exponent) {
    return exponent < -126 ? -126 : exponent > 127 ? 127 : exponent;
  }
  // value * 2^exponent, exact unless it is less than 2^-126.
  static __device__ __forceinline__ float scaled(float value, int exponent) {
    const int first = clamped(exponent);
    return value * power_of_two(first) * power_of_two(clamped(exponent - first));
  }

  // The exponent of a magnitude; of subnormal numbers, too.
  static __device__ __forceinline__ int exponent_of(float value) {
    const unsigned bits = __float_as_uint(value) & 0x7fffffffU;
    if (bits == 0) return kNothing;
    if (bits >= 1U << 23) return static_cast<int>(bits >> 23) - 127;
    return static_cast<int>(__float_as_uint(__uint_as_float(bits) * 0x1p64F) >> 23) - 127 - 64;
  }

  // Of `lanes` neighbouring lanes, a power of two.
  static __device__ __forceinline__ int greatest_of(int lanes, int exponent) {
    for (int distance = lanes / 2; distance > 0; distance /= 2) {
      const int other = __shfl_xor_sync(0xffffffffU, exponent, distance);
      exponent = other > exponent ? other : exponent;
    }
    return exponent;
  }

  template <ElementType kType>
  static __device__ __forceinline__ float load(const OperandArgument& operand, long long row,
                                               long long column) {
    using Stored = Element<kType>;
    return Stored::widen(
        static_cast<const typename Stored::Bits*>(operand.data)[row * operand.row_stride + column]);
  }

  struct Pair {
    unsigned short high;
    unsigned short low;
  };
  // An infinity becomes NaN.
  static __device__ __forceinline__ Pair split(float value) {
    using Half = Element<ElementType::kFloat16>;
    const unsigned short high = Half::narrow(value);
    return {high, Half::narrow(value - Half::widen(high))};
  }

  // The exponent of a row of A per program.
  static __device__ __forceinline__ void find_exponents(const KernelArguments& arguments) {
    __shared__ int of_warps[kWarps];
    const OperandArgument& operand = arguments.operands[kNormLoraA];
    const int columns = static_cast<int>(arguments.sizes[kNormColumns]);
    let_second_stage_start();
    int exponent = kNothing;
#pragma unroll 8
    for (int column = threadIdx.x; column < columns; column += kFactorPairThreads) {
      const int found = exponent_of(load<Op::kType[kNormLoraA]>(operand, blockIdx.x, column));
      exponent = found > exponent ? found : exponent;
    }
    exponent = greatest_of(32, exponent);
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = exponent;
    __syncthreads();
    if (threadIdx.x > 0) return;
    for (int warp = 1; warp < kWarps; ++warp) {
      exponent = of_warps[warp] > exponent ? of_warps[warp] : exponent;
    }
    Op::pairs(arguments).exponents()[blockIdx.x] = exponent;
  }

  // Splits kFactorPairColumns columns of row k of A.
  static __device__ __forceinline__ void split_a(const KernelArguments& arguments, int k,
                                                 int first_column) {
    constexpr int kEach = kFactorPairColumns / kFactorPairThreads;
    const OperandArgument& operand = arguments.operands[kNormLoraA];
    const FactorPairPlaces places = Op::pairs(arguments);
    const int columns = static_cast<int>(arguments.sizes[kNormColumns]);
    float values[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int column = first_column + i * kFactorPairThreads + threadIdx.x;
      values[i] = column < columns ? load<Op::kType[kNormLoraA]>(operand, k, column) : 0.0F;
    }
    wait_for_first_stage();
    const int exponent = kTop - places.exponents()[k];
    unsigned short* const to = places.lora_a() + k * places.a_stride;
    const long long next = arguments.sizes[kNormRank] * places.a_stride;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int column = first_column + i * kFactorPairThreads + threadIdx.x;
      const Pair pair = split(scaled(values[i], exponent));
      if (column >= columns) continue;
      to[column] = pair.high;
      to[next + column] = pair.low;
      to[2 * next + column] = pair.high;
    }
  }

  // Splits a row of B by `lanes` neighbouring threads.
  static __device__ __forceinline__ void split_b(const KernelArguments& arguments, long long row,
                                                 int lanes) {
    const OperandArgument& operand = arguments.operands[kNormLoraB];
    const FactorPairPlaces places = Op::pairs(arguments);
    const bool is_row = row < arguments.sizes[kNormRows];
    const int rank = is_row ? static_cast<int>(arguments.sizes[kNormRank]) : 0;
    const int lane = static_cast<int>(threadIdx.x) % lanes;
    constexpr int kSize = size_in_bytes(Op::kType[kNormLoraB]);
    for (int k = lane * (128 / kSize); k < rank; k += lanes * (128 / kSize)) {
      const auto* const from =
          static_cast<const char*>(operand.data) + (row * operand.row_stride + k) * kSize;
      asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
    }
    wait_for_first_stage();
    int exponent = kNothing;
#pragma unroll 4
    for (int k = lane; k < rank; k += lanes) {
      const int product =
          exponent_of(load<Op::kType[kNormLoraB]>(operand, row, k)) + places.exponents()[k];
      exponent = product > exponent ? product : exponent;
    }
    exponent = greatest_of(lanes, exponent);
    if (is_row && lane == 0) places.scales()[row] = power_of_two(clamped(exponent - 2 * kTop));
    unsigned short* const to = places.lora_b() + row * places.b_stride;
#pragma unroll 4
    for (int k = lane; k < rank; k += lanes) {
      const Pair pair = split(scaled(load<Op::kType[kNormLoraB]>(operand, row, k),
                                     kTop + places.exponents()[k] - exponent));
      to[k] = pair.low;
      to[rank + k] = pair.high;
      to[2 * rank + k] = pair.high;
    }
  }

  static __device__ __forceinline__ void split_factors(const KernelArguments& arguments) {
    const auto columns = static_cast<int>(arguments.sizes[kNormColumns]);
    const int chunks = (columns + kFactorPairColumns - 1) / kFactorPairColumns;  // of a row of A
    const auto rank = static_cast<int>(arguments.sizes[kNormRank]);
    const int program = static_cast<int>(blockIdx.x);
    let_second_stage_start();
    if (program < rank * chunks) {
      split_a(arguments, program / chunks, program % chunks * kFactorPairColumns);
    } else {
      const int lanes = factor_pair_lanes(rank);
      const long long thread =
          static_cast<long long>(program - rank * chunks) * kFactorPairThreads + threadIdx.x;
      split_b(arguments, thread / lanes, lanes);
    }
  }
};

}  // namespace dorajit::kernels

// A program without these stages does not name them.
#ifdef dorajit_exponents
#define DORAJIT_FACTOR_PAIR_STAGES(...)                                                        \
  extern "C" __global__ void __launch_bounds__(dorajit::kernels::kFactorPairThreads)           \
      dorajit_exponents(const __grid_constant__ dorajit::kernels::KernelArguments arguments) { \
    dorajit::kernels::FactorPairs<__VA_ARGS__>::find_exponents(arguments);                     \
  }                                                                                            \
  extern "C" __global__ void __launch_bounds__(dorajit::kernels::kFactorPairThreads)           \
      dorajit_split(const __grid_constant__ dorajit::kernels::KernelArguments arguments) {     \
    dorajit::kernels::FactorPairs<__VA_ARGS__>::split_factors(arguments);                      \
  }
#else
#define DORAJIT_FACTOR_PAIR_STAGES(...)
#endif
