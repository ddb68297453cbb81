// Factors of weight_norm that are not of one 16-bit type, as sums of two float16, high and low,
// side by side in the rank: sm_80 and newer.
//
//     B A = [low(B) high(B) high(B)] [high(A); low(A); high(A)]
//
// low(B) low(A) is less than 2^-22 of the product and is left out. Two stages before the kernel of
// the norm write both to the workspace. Row k of A is scaled by a power of two that takes its
// greatest magnitude to between 2^14 and 2^15; its inverse goes into column k of B. Row i of B is
// scaled in the same way then, and its inverse multiplies the products. So the terms that are
// greatest in a row of B A keep 39 bits, and all others as many less as they are smaller.
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

  static __device__ __forceinline__ int greatest_in_warp(int exponent) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
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

  // Splits a row of A per program.
  static __device__ __forceinline__ void split_a(const KernelArguments& arguments) {
    __shared__ int of_warps[kWarps];
    const FactorPairPlaces places = Op::pairs(arguments);
    const OperandArgument& from = arguments.operands[Op::kLoraA];
    const long long k = blockIdx.x;
    const long long rank = arguments.sizes[kNormRank];
    const int columns = static_cast<int>(arguments.sizes[kNormColumns]);
    let_second_stage_start();
    int exponent = kNothing;
#pragma unroll 8
    for (int column = threadIdx.x; column < columns; column += kFactorPairThreads) {
      const int found = exponent_of(load<Op::kType[Op::kLoraA]>(from, k, column));
      exponent = found > exponent ? found : exponent;
    }
    exponent = greatest_in_warp(exponent);
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = exponent;
    __syncthreads();
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) {
      exponent = of_warps[warp] > exponent ? of_warps[warp] : exponent;
    }
    if (threadIdx.x == 0) places.exponents()[k] = exponent;
    unsigned short* const to = places.lora_a() + k * places.a_stride;
    const long long next = rank * places.a_stride;
#pragma unroll 4
    for (int column = threadIdx.x; column < columns; column += kFactorPairThreads) {
      const Pair pair =
          split(scaled(load<Op::kType[Op::kLoraA]>(from, k, column), kTop - exponent));
      to[column] = pair.high;
      to[next + column] = pair.low;
      to[2 * next + column] = pair.high;
    }
  }

  // Splits a row of B per warp.
  static __device__ __forceinline__ void split_b(const KernelArguments& arguments) {
    const FactorPairPlaces places = Op::pairs(arguments);
    const OperandArgument& from = arguments.operands[Op::kLoraB];
    const int rank = static_cast<int>(arguments.sizes[kNormRank]);
    const long long row = static_cast<long long>(blockIdx.x) * kWarps + threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    let_second_stage_start();
    wait_for_first_stage();
    if (row >= arguments.sizes[kNormRows]) return;
    int exponent = kNothing;
#pragma unroll 4
    for (int k = lane; k < rank; k += 32) {
      const int found = exponent_of(load<Op::kType[Op::kLoraB]>(from, row, k));
      const int product = found + places.exponents()[k];
      exponent = product > exponent ? product : exponent;
    }
    exponent = greatest_in_warp(exponent);
    if (lane == 0) places.scales()[row] = power_of_two(clamped(exponent - 2 * kTop));
    unsigned short* const to = places.lora_b() + row * places.b_stride;
#pragma unroll 4
    for (int k = lane; k < rank; k += 32) {
      const Pair pair = split(scaled(load<Op::kType[Op::kLoraB]>(from, row, k),
                                     kTop + places.exponents()[k] - exponent));
      to[k] = pair.low;
      to[rank + k] = pair.high;
      to[2 * rank + k] = pair.high;
    }
  }
};

}  // namespace dorajit::kernels

// A program without these stages does not name them.
#ifdef dorajit_split_a
#define DORAJIT_FACTOR_PAIR_STAGES(...)                                                      \
  extern "C" __global__ void __launch_bounds__(dorajit::kernels::kFactorPairThreads)         \
      dorajit_split_a(const __grid_constant__ dorajit::kernels::KernelArguments arguments) { \
    dorajit::kernels::FactorPairs<__VA_ARGS__>::split_a(arguments);                          \
  }                                                                                          \
  extern "C" __global__ void __launch_bounds__(dorajit::kernels::kFactorPairThreads)         \
      dorajit_split_b(const __grid_constant__ dorajit::kernels::KernelArguments arguments) { \
    dorajit::kernels::FactorPairs<__VA_ARGS__>::split_b(arguments);                          \
  }
#else
#define DORAJIT_FACTOR_PAIR_STAGES(...)
#endif
