// The work of a program of cuda/weight_norm/split.cuh, and the layout of its shared memory.
#pragma once

#include "cuda/async_copy.cuh"
#include "cuda/weight_norm/program_pair.cuh"
#include "weight_norm_config.h"

namespace dorajit::kernels {

struct SplitShape {
  static constexpr int kRows = kSplitRows;
  static constexpr int kColumns = kSplitColumns;
  static constexpr int kDepth = kNormRankBlock;
  static constexpr int kGroupThreads = 128;
  static constexpr int kSplitters = 2;  // warpgroups that write tiles
  static constexpr int kRowBytes = 128;
  static constexpr int kTileHalf = kSplitTileBytes / 2;      // the high half precedes the low half
  static constexpr int kFactorHalf = kSplitFactorBytes / 2;  // likewise

  // A tile is not split if its rows differ by more than 2^kMaxSpread, or are not all finite.
  static constexpr int kMaxSpread = 7;
  static constexpr int kUnsplit = 1 << 20;  // the exponent of a tile that is not split

  struct Task {
    long long first_row;
    int first_tile;
    int last_tile;
    int rank;  // 0 if B A has no effect

    __device__ __forceinline__ int blocks() const { return (rank + kDepth - 1) / kDepth; }
    __device__ __forceinline__ int slabs() const { return (last_tile - first_tile) * blocks(); }
    // Steps of 16 along the rank in a block.
    __device__ __forceinline__ int steps(int block) const {
      const int left = rank - block * kDepth;
      return left < kDepth ? (left + 15) / 16 : kDepth / 16;
    }
  };

  struct Memory {
    unsigned base;
    int stage_bytes;
    unsigned factors;
    unsigned exponents;  // of the rows of B
    bool streams;
    unsigned peer;  // offset from an address here to the same place in the other program

    __device__ __forceinline__ Memory(unsigned aligned, int rank)
        : base(aligned),
          stage_bytes(split_stage_bytes(rank)),
          factors(aligned + kSplitStages * split_stage_bytes(rank)),
          exponents(factors + split_factor_blocks(rank) * kSplitFactorBytes),
          streams(split_streams(rank)),
          peer(address_in_pair(aligned, pair_rank() ^ 1) - aligned) {
      rows_ = streams ? kSplitStages : split_factor_blocks(rank);
    }

    __device__ __forceinline__ unsigned stage(int i) const { return base + i * stage_bytes; }
    // The address of block `block` of B while the tile of A is in stage `i`.
    __device__ __forceinline__ unsigned factor(int block, int i) const {
      return streams ? stage(i) + kSplitTileBytes : factors + block * kSplitFactorBytes;
    }
    __device__ __forceinline__ unsigned row_exponents(int block, int i) const {
      return exponents + (streams ? i : block) * kRows * 4;
    }
    __device__ __forceinline__ unsigned tile_exponent(int i) const {
      return exponents + rows_ * kRows * 4 + i * 16;
    }
    // Where warp `warp` of a group publishes, for the other warps, the greatest magnitude of its
    // rows and the least of its rows' greatest magnitudes.
    __device__ __forceinline__ unsigned exchange(int group, int turn, int warp) const {
      return tile_exponent(kSplitStages) + ((group * 2 + turn) * 4 + warp) * 8;
    }
    __device__ __forceinline__ unsigned barriers() const {
      return (tile_exponent(kSplitStages) + 32 * 4 + 7) & ~7U;
    }
    __device__ __forceinline__ Pipeline<kSplitStages> stages() const { return {barriers()}; }

   private:
    int rows_;
  };

  static __device__ __forceinline__ void store_word(unsigned to, unsigned word) {
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(word) : "memory");
  }
  static __device__ __forceinline__ void store_words(unsigned to, unsigned first, unsigned second) {
    asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(to), "r"(first), "r"(second));
  }
  static __device__ __forceinline__ int load_word(unsigned from) {
    int word;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(word) : "r"(from) : "memory");
    return word;
  }
  static __device__ __forceinline__ void store_half(unsigned to, unsigned bits) {
    asm volatile("st.shared.b16 [%0], %1;" ::"r"(to), "h"(static_cast<unsigned short>(bits))
                 : "memory");
  }
};

}  // namespace dorajit::kernels
