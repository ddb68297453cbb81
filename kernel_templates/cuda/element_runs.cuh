// Eight neighbouring elements of a row, as a lane loads and stores them, and the rows it visits.
#pragma once

#include "arguments.h"
#include "cuda/vector_access.cuh"

namespace dorajit::kernels {

inline constexpr int kElementsOfRun = 8;

// As they lie in memory, in vectors of kWidth.
template <ElementType kElements, int kWidth>
struct ElementRun {
  static constexpr int kVectors = kElementsOfRun / kWidth;

  Words<words_for(kWidth* size_in_bytes(kElements))> words[kVectors];

  // Those at `at`, or the first `remaining` of them.
  template <bool kStreams = false>
  __device__ __forceinline__ void load(const void* at, long long remaining) {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      load_vector<kElements, kWidth, kStreams>(at, i * kWidth, remaining - i * kWidth, words[i]);
    }
  }
  __device__ __forceinline__ void store(void* at, long long remaining) const {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      store_vector<kElements, kWidth, false>(at, i * kWidth, remaining - i * kWidth, words[i]);
    }
  }
  __device__ __forceinline__ float get(int i) const {
    return Element<kElements>::widen(get_bits<kElements>(words[i / kWidth], i % kWidth));
  }
  __device__ __forceinline__ void put(int i, float value) {
    set_bits<kElements>(words[i / kWidth], i % kWidth, Element<kElements>::narrow(value));
  }
};

// Every eighth row of an operand from a place on; they are visited in order.
template <ElementType kElements>
struct RowPointer {
  char* at;
  long long step;  // bytes of eight rows

  __device__ __forceinline__ RowPointer(const OperandArgument& operand, long long row,
                                        long long column)
      : at(static_cast<char*>(operand.data) +
           (row * operand.row_stride + column) * size_in_bytes(kElements)),
        step(8 * operand.row_stride * size_in_bytes(kElements)) {}
  __device__ __forceinline__ void advance() { at += step; }
};

}  // namespace dorajit::kernels
