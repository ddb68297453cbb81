// Pieces of a tile in shared memory, 16 rows by 16 columns, in the layout of wgmma's accumulators:
// sm_90 and newer. The tile lies in boxes of 128 bytes by its rows, with TMA's swizzle.
#pragma once

#include "cuda/elements.cuh"
#include "cuda/matrix_fragments.cuh"

namespace dorajit::kernels {

__device__ __forceinline__ void store_fragments(unsigned address, const unsigned (&fragments)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(fragments[0]), "r"(fragments[1]), "r"(fragments[2]), "r"(fragments[3])
               : "memory");
}

// Lane t's elements of a piece: columns 2 (t % 4) + {0, 1} of rows t / 4 (+ 8) in elements {0, 1}
// (+ 2); those of the other eight columns in the next four elements.
template <ElementType kType>
struct TilePiece {
  static_assert(size_in_bytes(kType) == 2);
  static constexpr int kPieces = 4;  // side by side in a box

  unsigned words[4];

  // Offset in bytes, within a box, of this lane's part of the pieces at rows `first_row` and later.
  static __device__ __forceinline__ unsigned place(int first_row) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    return (first_row + lane % 16) * 128 + (lane / 16 ^ lane % 8) * 16;
  }
  // `place` is place() plus the address of a box, which must be aligned to 1024 bytes.
  __device__ __forceinline__ void load(unsigned place, int piece) {
    load_fragments(place ^ piece * 32, words);
  }
  __device__ __forceinline__ void store(unsigned place, int piece) const {
    store_fragments(place ^ piece * 32, words);
  }
  __device__ __forceinline__ float get(int i) const {
    return Element<kType>::widen(static_cast<unsigned short>(words[i / 2] >> 16 * (i % 2)));
  }
  // Writes elements i and i + 1; i is even.
  __device__ __forceinline__ void put(int i, const float (&values)[2]) {
    words[i / 2] = narrow_pair<kType>(values[0], values[1]);
  }
};

template <>
struct TilePiece<ElementType::kFloat32> {
  static constexpr int kPieces = 2;

  float values[8];

  static __device__ __forceinline__ unsigned place(int first_row) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    return (first_row + lane / 4) * 128 + (lane % 4 / 2 ^ lane / 4) * 16 + lane % 2 * 8;
  }
  static __device__ __forceinline__ unsigned pair_at(unsigned place, int piece, int i) {
    return (place ^ (piece * 64 + i / 4 * 32)) + i / 2 % 2 * 1024;
  }
  __device__ __forceinline__ void load(unsigned place, int piece) {
#pragma unroll
    for (int i = 0; i < 8; i += 2) {
      asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                   : "=f"(values[i]), "=f"(values[i + 1])
                   : "r"(pair_at(place, piece, i))
                   : "memory");
    }
  }
  __device__ __forceinline__ void store(unsigned place, int piece) const {
#pragma unroll
    for (int i = 0; i < 8; i += 2) {
      asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(pair_at(place, piece, i)),
                   "f"(values[i]), "f"(values[i + 1])
                   : "memory");
    }
  }
  __device__ __forceinline__ float get(int i) const { return values[i]; }
  __device__ __forceinline__ void put(int i, const float (&pair)[2]) {
    values[i] = pair[0];
    values[i + 1] = pair[1];
  }
};

}  // namespace dorajit::kernels
