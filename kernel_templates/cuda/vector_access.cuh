// Vectors of elements in registers, and the widest loads and stores that their size permits.
//
// Vectors are arrays of 32-bit words that are indexed only by constants, so that they stay in
// registers. Outputs may alias inputs, so loads never use the read-only data path.
#pragma once

#include "cuda/elements.cuh"
#include "streaming_config.h"

namespace dorajit::kernels {

template <int kWords>
struct Words {
  unsigned word[kWords];
};

constexpr int words_for(int bytes) { return bytes < 4 ? 1 : bytes / 4; }

constexpr bool streams_loads(CachePolicy policy) { return policy != CachePolicy::kDefault; }
constexpr bool streams_stores(CachePolicy policy) { return policy == CachePolicy::kStreamAll; }

template <class Access, bool kStream>
__device__ __forceinline__ Access load_once(const void* address) {
  const Access* typed = static_cast<const Access*>(address);
  if constexpr (kStream) return __ldcs(typed);
  return *typed;
}

template <class Access, bool kStream>
__device__ __forceinline__ void store_once(void* address, Access value) {
  Access* typed = static_cast<Access*>(address);
  if constexpr (kStream) {
    __stcs(typed, value);
  } else {
    *typed = value;
  }
}

// Loads kBytes (2, 4, 8, or a multiple of 16) from an address aligned to min(kBytes, 16).
template <int kBytes, bool kStream, int kWords>
__device__ __forceinline__ void load_words(const char* address, Words<kWords>& words) {
  if constexpr (kBytes == 2) {
    words.word[0] = load_once<unsigned short, kStream>(address);
  } else if constexpr (kBytes == 4) {
    words.word[0] = load_once<unsigned, kStream>(address);
  } else if constexpr (kBytes == 8) {
    const uint2 part = load_once<uint2, kStream>(address);
    words.word[0] = part.x;
    words.word[1] = part.y;
  } else {
#pragma unroll
    for (int i = 0; i < kBytes / 16; ++i) {
      const uint4 part = load_once<uint4, kStream>(address + 16 * i);
      words.word[4 * i + 0] = part.x;
      words.word[4 * i + 1] = part.y;
      words.word[4 * i + 2] = part.z;
      words.word[4 * i + 3] = part.w;
    }
  }
}

template <int kBytes, bool kStream, int kWords>
__device__ __forceinline__ void store_words(char* address, const Words<kWords>& words) {
  if constexpr (kBytes == 2) {
    store_once<unsigned short, kStream>(address, static_cast<unsigned short>(words.word[0]));
  } else if constexpr (kBytes == 4) {
    store_once<unsigned, kStream>(address, words.word[0]);
  } else if constexpr (kBytes == 8) {
    store_once<uint2, kStream>(address, make_uint2(words.word[0], words.word[1]));
  } else {
#pragma unroll
    for (int i = 0; i < kBytes / 16; ++i) {
      store_once<uint4, kStream>(address + 16 * i,
                                 make_uint4(words.word[4 * i + 0], words.word[4 * i + 1],
                                            words.word[4 * i + 2], words.word[4 * i + 3]));
    }
  }
}

// Read and replace the bits of element `index` of a vector.
template <ElementType kType, int kWords>
__device__ __forceinline__ typename Element<kType>::Bits get_bits(const Words<kWords>& words,
                                                                  int index) {
  if constexpr (size_in_bytes(kType) == 2) {
    return static_cast<unsigned short>(words.word[index / 2] >> (16 * (index % 2)));
  } else if constexpr (size_in_bytes(kType) == 4) {
    return words.word[index];
  } else {
    return static_cast<unsigned long long>(words.word[2 * index + 1]) << 32 | words.word[2 * index];
  }
}

template <ElementType kType, int kWords>
__device__ __forceinline__ void set_bits(Words<kWords>& words, int index,
                                         typename Element<kType>::Bits bits) {
  if constexpr (size_in_bytes(kType) == 2) {
    unsigned& word = words.word[index / 2];
    word = index % 2 == 0 ? bits : (word & 0xffffu) | static_cast<unsigned>(bits) << 16;
  } else if constexpr (size_in_bytes(kType) == 4) {
    words.word[index] = bits;
  } else {
    words.word[2 * index] = static_cast<unsigned>(bits);
    words.word[2 * index + 1] = static_cast<unsigned>(bits >> 32);
  }
}

// Loads kWidth elements at `data + offset`, or only the first `remaining` if the row ends.
template <ElementType kType, int kWidth, bool kStream, int kWords>
__device__ __forceinline__ void load_vector(const void* data, long long offset, long long remaining,
                                            Words<kWords>& words) {
  constexpr int kSize = size_in_bytes(kType);
  const char* address = static_cast<const char*>(data) + offset * kSize;
  if (remaining >= kWidth) {
    load_words<kWidth * kSize, kStream>(address, words);
  } else {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      using Bits = typename Element<kType>::Bits;
      set_bits<kType>(words, i,
                      i < remaining ? load_once<Bits, kStream>(address + i * kSize) : Bits(0));
    }
  }
}

template <ElementType kType, int kWidth, bool kStream, int kWords>
__device__ __forceinline__ void store_vector(void* data, long long offset, long long remaining,
                                             const Words<kWords>& words) {
  constexpr int kSize = size_in_bytes(kType);
  char* address = static_cast<char*>(data) + offset * kSize;
  if (remaining >= kWidth) {
    store_words<kWidth * kSize, kStream>(address, words);
  } else {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      using Bits = typename Element<kType>::Bits;
      if (i < remaining) {
        store_once<Bits, kStream>(address + i * kSize, get_bits<kType>(words, i));
      }
    }
  }
}

}  // namespace dorajit::kernels
