// Neighbouring elements as they lie in memory, in as few registers as they fill.
#pragma once

namespace dorajit::kernels {

template <class Bits, int kCount>
struct alignas(kCount * sizeof(Bits)) PackedElements {
  static constexpr int kInWord = 4 / static_cast<int>(sizeof(Bits));
  static_assert(kCount % kInWord == 0, "elements fill words");

  unsigned words[kCount / kInWord];

  __device__ __forceinline__ Bits get(int i) const {
    return static_cast<Bits>(words[i / kInWord] >> i % kInWord * (32 / kInWord) % 32);
  }
  // Where nothing but zero was before.
  __device__ __forceinline__ void put(int i, Bits bits) {
    words[i / kInWord] |= static_cast<unsigned>(bits) << i % kInWord * (32 / kInWord) % 32;
  }
};

}  // namespace dorajit::kernels
