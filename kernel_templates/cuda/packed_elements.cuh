// Neighbouring elements in their memory layout, packed into as few registers as possible.
#pragma once

namespace dorajit::kernels {

template <class Bits, int kCount>
struct alignas(kCount * sizeof(Bits)) PackedElements {
  static constexpr int kInWord = 4 / static_cast<int>(sizeof(Bits));
  static_assert(kCount % kInWord == 0, "elements must fill whole words");

  unsigned words[kCount / kInWord];

  __device__ __forceinline__ Bits get(int i) const {
    return static_cast<Bits>(words[i / kInWord] >> i % kInWord * (32 / kInWord) % 32);
  }
  // Element i must be zero before.
  __device__ __forceinline__ void put(int i, Bits bits) {
    words[i / kInWord] |= static_cast<unsigned>(bits) << i % kInWord * (32 / kInWord) % 32;
  }
};

}  // namespace dorajit::kernels
