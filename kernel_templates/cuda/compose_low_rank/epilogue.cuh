// The epilogue of compose_low_rank with wgmma: a group composes the products in its registers.
#pragma once

#include "cuda/compose_low_rank/tiles.cuh"
#include "cuda/tile_fragments.cuh"
#include "math/compose_residual.h"

namespace dorajit::kernels {

template <class Tiles>
struct LowRankEpilogue {
  using Memory = typename Tiles::Memory;
  using Tile = typename Tiles::Tile;
  using Products = typename Tiles::Products;

  // Gain or bias of the columns of a tile; each thread of a group loads every 128th column. The
  // values are widened when they are used, so that no instruction waits for them earlier.
  template <LowRankOperand kOperand>
  struct ColumnValues {
    static constexpr bool kIsThere = Tiles::kType[kOperand] != ElementType::kAbsent;
    using Own = Element<kIsThere ? Tiles::kType[kOperand] : Tiles::kFactorType>;

    typename Own::Bits bits[Tiles::kColumns / Tiles::kGroupThreads];

    __device__ __forceinline__ void load(const KernelArguments& arguments, const Tile& tile) {
      const auto* const data =
          static_cast<const typename Own::Bits*>(arguments.operands[kOperand].data);
#pragma unroll
      for (int i = 0; i < Tiles::kColumns / Tiles::kGroupThreads; ++i) {
        const int column = tile.column + column_of_thread(i);
        const bool is_there = kIsThere && column < arguments.sizes[kLowRankColumns];
        bits[i] = is_there ? data[column] : typename Own::Bits(0);
      }
    }
    __device__ __forceinline__ float get(int i) const { return Own::widen(bits[i]); }
  };
  static __device__ __forceinline__ int column_of_thread(int i) {
    return static_cast<int>(threadIdx.x) % Tiles::kGroupThreads + i * Tiles::kGroupThreads;
  }

  // Writes gain and bias to the group's table, once no thread of the group reads the previous ones.
  static __device__ __forceinline__ void publish_columns(const Memory& memory, int group,
                                                         const ColumnValues<kLowRankGain>& gain,
                                                         const ColumnValues<kLowRankBias>& bias) {
    wait_for_group(group);
#pragma unroll
    for (int i = 0; i < Tiles::kColumns / Tiles::kGroupThreads; ++i) {
      asm volatile(
          "st.shared.v2.f32 [%0], {%1, %2};" ::"r"(memory.table(group) + column_of_thread(i) * 8),
          "f"(gain.get(i)), "f"(bias.get(i))
          : "memory");
    }
    wait_for_group(group);
  }

  static __device__ __forceinline__ void wait_for_group(int group) {
    asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "n"(Tiles::kGroupThreads) : "memory");
  }

  // Gain and bias of this lane's two neighbouring columns of every eight.
  struct ColumnPair {
    float gain[2];
    float bias[2];

    __device__ __forceinline__ void load(unsigned table, int column) {
      asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                   : "=f"(gain[0]), "=f"(bias[0]), "=f"(gain[1]), "=f"(bias[1])
                   : "r"(table + (column + static_cast<int>(threadIdx.x) % 4 * 2) * 8)
                   : "memory");
    }
  };

  template <ElementType kOwn>
  static __device__ __forceinline__ unsigned piece_place(unsigned strip, int piece, int first_row) {
    using Piece = TilePiece<kOwn>;
    return strip + piece / Piece::kPieces * Tiles::kGroupRows * kLowRankRowBytes +
           Piece::place(first_row);
  }

  // Composes a strip of 64 rows.
  static __device__ __forceinline__ void compose_strip(
      const ComposeResidual<float>& formula, const Memory& memory, int group, int strip, int slab,
      const ColumnPair (&columns)[Tiles::kPieces][2], const float* products) {
    using Result = TilePiece<Tiles::kResultType>;
    using Out = TilePiece<Tiles::kOutType>;
    using Inner = TilePiece<Tiles::kHasInner ? Tiles::kInnerType : Tiles::kOutType>;
    const int first_row =
        slab * 64 + static_cast<int>(threadIdx.x) % Tiles::kGroupThreads / 32 * 16;
    const unsigned result_strip = memory.template strip<Tiles::kResultType>(group, 0, strip);
    const unsigned out_strip =
        memory.template strip<Tiles::kOutType>(group, Tiles::kOutOffset, strip);
    Result results[Tiles::kPieces];
#pragma unroll
    for (int piece = 0; piece < Tiles::kPieces; ++piece) {
      results[piece].load(piece_place<Tiles::kResultType>(result_strip, piece, first_row),
                          piece % Result::kPieces);
    }
#pragma unroll
    for (int piece = 0; piece < Tiles::kPieces; ++piece) {
      Out out;
      Inner inner;
#pragma unroll
      for (int i = 0; i < 8; i += 2) {
        float outs[2];
        float inners[2];
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const float matrix[] = {products[piece * 8 + i + e], results[piece].get(i + e)};
          const ColumnPair& own = columns[piece][i / 4];
          const float broadcast[] = {own.gain[e], own.bias[e]};
          float made[2];
          formula(matrix, broadcast, made);
          outs[e] = made[0];
          inners[e] = made[1];
        }
        out.put(i, outs);
        inner.put(i, inners);
      }
      out.store(piece_place<Tiles::kOutType>(out_strip, piece, first_row), piece % Out::kPieces);
      if constexpr (Tiles::kHasInner) {
        const unsigned inner_strip =
            memory.template strip<Tiles::kInnerType>(group, Tiles::kInnerOffset, strip);
        inner.store(piece_place<Tiles::kInnerType>(inner_strip, piece, first_row),
                    piece % Inner::kPieces);
      }
    }
  }

  static __device__ __forceinline__ void compose(const ComposeResidual<float>& formula,
                                                 const Memory& memory, int group, unsigned parity,
                                                 const Products& products) {
#pragma unroll
    for (int strip = 0; strip < Tiles::kStrips; ++strip) {
      ColumnPair columns[Tiles::kPieces][2];
#pragma unroll
      for (int eight = 0; eight < 2 * Tiles::kPieces; ++eight) {
        columns[eight / 2][eight % 2].load(memory.table(group), strip * Tiles::kStrip + eight * 8);
      }
      memory.strip_full(group, strip).wait(parity);
#pragma unroll
      for (int slab = 0; slab < Tiles::kSlabs; ++slab) {
        compose_strip(formula, memory, group, strip, slab, columns,
                      products[slab] + strip * Tiles::kStrip / 2);
      }
      publish_shared_stores();
      __syncwarp();
      if (threadIdx.x % 32 == 0) memory.strip_composed(group, strip).arrive();
    }
  }
};

}  // namespace dorajit::kernels
