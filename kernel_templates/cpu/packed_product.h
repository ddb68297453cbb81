// The product of a block of rows of B with a span of columns of A, on the CPU.
//
// Elements of the product are sums over k in ascending order, one multiply-add each, over blocks of
// kNormRankBlock, which are then added in order. A block of k is packed in the compute type: B in
// rows; A in panels that are as wide as a tile and contiguous row by row. A panel stays in the L1
// cache while all rows of B use it.
#pragma once

#include "cpu/pack.h"
#include "math/weight_norm.h"

namespace dorajit::kernels {

// Tiles of the product that fill the registers except for some that A and B need.
template <int kBytes>
struct ProductTile {
  static constexpr int kRows = 4;
  static constexpr int kPacks = 3;  // 12 of 16 registers
};
template <>
struct ProductTile<64> {
  static constexpr int kRows = 8;
  static constexpr int kPacks = 2;  // a panel of A takes 16 KB
};

template <class T, int kBlockRows, int kBytes>
struct PackedProduct {
  using P = Pack<T, kBytes>;
  using Tile = ProductTile<kBytes>;

  static constexpr int kSpan = kNormSpan;        // columns of A
  static constexpr int kDepth = kNormRankBlock;  // maximum depth of a block of k
  static constexpr int kPacks = kSpan / P::kWidth;
  static constexpr int kPanels = (kPacks + Tile::kPacks - 1) / Tile::kPacks;
  static constexpr int kLastPanel = kPacks - (kPanels - 1) * Tile::kPacks;
  static_assert(kBlockRows % Tile::kRows == 0, "a block of rows is a multiple of a tile's");

  alignas(64) T packed_a[kDepth * kSpan];
  alignas(64) T packed_b[kBlockRows][kDepth];
  alignas(64) T product[kBlockRows][kSpan];

  // The offset of a panel is independent of the depth in use.
  static constexpr int panel_offset(int panel) { return panel * Tile::kPacks * P::kWidth * kDepth; }

  // A tile with kTilePacks packs in this panel. `begins`: whether this is the first block.
  template <int kTilePacks>
  static DORAJIT_FORMULA void add_tile(const T* a, const T* b, long long depth, bool begins,
                                       T* to) {
    P sum[Tile::kRows][kTilePacks];
    DORAJIT_UNROLL_FULLY
    for (int row = 0; row < Tile::kRows; ++row) {
      DORAJIT_UNROLL_FULLY
      for (int i = 0; i < kTilePacks; ++i) sum[row][i].fill(T(0));
    }
    for (long long k = 0; k < depth; ++k) {
      P column[kTilePacks];
      DORAJIT_UNROLL_FULLY
      for (int i = 0; i < kTilePacks; ++i) column[i].load(a + (k * kTilePacks + i) * P::kWidth);
      DORAJIT_UNROLL_FULLY
      for (int row = 0; row < Tile::kRows; ++row) {
        P factor;
        factor.fill(b[static_cast<long long>(row) * kDepth + k]);
        DORAJIT_UNROLL_FULLY
        for (int i = 0; i < kTilePacks; ++i) multiply_add(factor, column[i], sum[row][i]);
      }
    }
    DORAJIT_UNROLL_FULLY
    for (int row = 0; row < Tile::kRows; ++row) {
      DORAJIT_UNROLL_FULLY
      for (int i = 0; i < kTilePacks; ++i) {
        T* const at = to + row * kSpan + i * P::kWidth;
        if (!begins) {
          P before;
          before.load(at);
          sum[row][i].lanes = before.lanes + sum[row][i].lanes;
        }
        sum[row][i].store(at);
      }
    }
  }

  template <int kTilePacks, class BeforeTile>
  DORAJIT_FORMULA void add_panel(int panel, int rows, long long depth, bool begins,
                                 const BeforeTile& before_tile) {
    constexpr int kTilesOfBlock = kBlockRows / Tile::kRows;
    for (int row = 0; row < rows; row += Tile::kRows) {
      before_tile(panel * kTilesOfBlock + row / Tile::kRows);
      add_tile<kTilePacks>(packed_a + panel_offset(panel), packed_b[row], depth, begins,
                           product[row] + panel * Tile::kPacks * P::kWidth);
    }
  }

  // Adds the packed block to the product's first `rows` rows, rounded up to tiles.
  // `before_tile(i)` is called for tile i of kPanels * kBlockRows / Tile::kRows.
  template <class BeforeTile>
  DORAJIT_FORMULA void add_block(int rows, long long depth, bool begins,
                                 const BeforeTile& before_tile) {
    constexpr int kWholePanels = kLastPanel == Tile::kPacks ? kPanels : kPanels - 1;
    for (int panel = 0; panel < kWholePanels; ++panel) {
      add_panel<Tile::kPacks>(panel, rows, depth, begins, before_tile);
    }
    if constexpr (kWholePanels < kPanels) {
      add_panel<kLastPanel>(kPanels - 1, rows, depth, begins, before_tile);
    }
  }

  // Packs row k of the block of A; `row` has kSpan elements.
  DORAJIT_FORMULA void pack_a(long long k, const T* row) {
    DORAJIT_UNROLL_FULLY
    for (int i = 0; i < kPacks; ++i) {
      const int panel = i / Tile::kPacks;
      const int panel_packs = panel + 1 < kPanels ? Tile::kPacks : kLastPanel;
      P pack;
      pack.load(row + i * P::kWidth);
      pack.store(packed_a + panel_offset(panel) + (k * panel_packs + i % Tile::kPacks) * P::kWidth);
    }
  }

  // Packs column j of the block of A, of which it has `depth` elements.
  DORAJIT_FORMULA void pack_a_column(int j, const T* column, long long depth) {
    const int pack = j / P::kWidth;
    const int panel = pack / Tile::kPacks;
    const int panel_packs = panel + 1 < kPanels ? Tile::kPacks : kLastPanel;
    T* const to = packed_a + panel_offset(panel) + pack % Tile::kPacks * P::kWidth + j % P::kWidth;
    for (long long k = 0; k < depth; ++k) to[k * panel_packs * P::kWidth] = column[k];
  }
};

}  // namespace dorajit::kernels
