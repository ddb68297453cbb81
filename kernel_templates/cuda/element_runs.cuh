// Loads and stores of eight neighbouring elements of a row by a lane, and the rows of a lane.
#pragma once

#include "arguments.h"
#include "cuda/vector_access.cuh"

namespace dorajit::kernels {

inline constexpr int kElementsOfRun = 8;

// Eight elements in their memory layout, in vectors of kWidth.
template <ElementType kElements, int kWidth>
struct ElementRun {
  static constexpr int kVectors = kElementsOfRun / kWidth;

  Words<words_for(kWidth* size_in_bytes(kElements))> words[kVectors];

  // Loads the elements at `at`, or the first `remaining` of them.
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

// Points to every eighth row of an operand, in order, from a given row on.
template <ElementType kElements>
struct RowPointer {
  char* at;
  long long step;  // bytes between rows that are eight apart

  __device__ __forceinline__ RowPointer(const OperandArgument& operand, long long row,
                                        long long column)
      : at(static_cast<char*>(operand.data) +
           (row * operand.row_stride + column) * size_in_bytes(kElements)),
        step(8 * operand.row_stride * size_in_bytes(kElements)) {}
  __device__ __forceinline__ void advance() { at += step; }
};

}  // namespace dorajit::kernels
