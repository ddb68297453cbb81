// The sums of squares of accumulator fragments. Of kRows rows, t / 4 and every eighth row after it,
// lane t holds two neighbouring columns of every eight (matrix_fragments.cuh), and so two chains of
// each row. Four neighbouring lanes share their rows; each lane keeps the span sums of one row.
#pragma once

#include "arguments.h"
#include "cuda/async_copy.cuh"
#include "cuda/elements.cuh"
#include "cuda/matrix_fragments.cuh"
#include "cuda/packed_elements.cuh"
#include "weight_norm_config.h"

namespace dorajit::kernels {

template <int kRows>
struct NormFragments {
  static_assert(kRows == 2 || kRows == 4, "four lanes keep the sums of two or four rows");

  float chains[kRows][2] = {};
  SpanSums<float, 1> spans;

  // Adds two neighbouring columns of the lane's row `row`.
  __device__ __forceinline__ void add(int row, float scale, const float (&products)[2],
                                      const float (&weights)[2]) {
    chains[row][0] = add_to_chain(scale, products[0], weights[0], chains[row][0]);
    chains[row][1] = add_to_chain(scale, products[1], weights[1], chains[row][1]);
  }

  // Must be called after the last column of a span.
  __device__ __forceinline__ void end_span() {
    float node[1] = {0};
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      float sum = chains[row][0] + chains[row][1];
      sum = sum + __shfl_xor_sync(0xffffffffu, sum, 1);
      sum = sum + __shfl_xor_sync(0xffffffffu, sum, 2);
      if (row == kept_row()) node[0] = sum;
      chains[row][0] = chains[row][1] = 0;
    }
    spans.push(node);
  }

  // The index of the lane's row whose sum it keeps. Two lanes may keep the same row.
  static __device__ __forceinline__ int kept_row() { return threadIdx.x % kRows; }
  // Whether this lane, rather than another one, stores the sum of that row.
  static __device__ __forceinline__ bool stores() { return threadIdx.x % 4 < kRows; }
  // The index of that row among the rows of the fragments.
  static __device__ __forceinline__ int kept_place() {
    return threadIdx.x % 32 / 4 + 8 * kept_row();
  }

  // The sum of that row.
  __device__ __forceinline__ float root() const {
    float sums[1];
    spans.root(sums);
    return sums[0];
  }
};

// A lane's elements of kSlabs slabs of 16 rows by kColumns of W, in their memory layout and in the
// places of accumulator fragments.
template <ElementType kType, int kSlabs, int kColumns>
struct WeightFragments {
  using Weight = Element<kType>;
  using Pair = PackedElements<typename Weight::Bits, 2>;

  Pair pairs[kSlabs][2][kColumns / 8];

  // Loads rows `row` + 16 slab + 8 h, columns `column` + 8 eight + {0, 1}; elements beyond W are
  // zeros. `in_pairs`: the columns of all lanes lie in W, and pairs are aligned.
  __device__ __forceinline__ void load(const KernelArguments& arguments,
                                       const OperandArgument& operand, long long first_row,
                                       long long column, bool in_pairs) {
#pragma unroll
    for (int slab = 0; slab < kSlabs; ++slab) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const long long row = first_row + slab * 16 + h * 8;
        const auto* const from = static_cast<const typename Weight::Bits*>(operand.data) +
                                 row * operand.row_stride + column;
        if (in_pairs) {
#pragma unroll
          for (int eight = 0; eight < kColumns / 8; ++eight) {
            pairs[slab][h][eight] = *reinterpret_cast<const Pair*>(from + eight * 8);
          }
        } else {
          const long long left =
              row < arguments.sizes[kNormRows] ? arguments.sizes[kNormColumns] - column : 0;
#pragma unroll
          for (int eight = 0; eight < kColumns / 8; ++eight) {
            pairs[slab][h][eight] = {};
#pragma unroll
            for (int e = 0; e < 2; ++e) {
              if (eight * 8 + e < left) pairs[slab][h][eight].put(e, from[eight * 8 + e]);
            }
          }
        }
      }
    }
  }
  __device__ __forceinline__ float get(int slab, int h, int eight, int e) const {
    return Weight::widen(pairs[slab][h][eight].get(e));
  }
};

// Units of W: 128 bytes of each row of a program, loaded into shared memory by the copy engine.
template <ElementType kType>
struct NormUnits {
  using Sums = NormFragments<2>;
  using Weight = Element<kType>;
  static constexpr int kRowBytes = kWgmmaRowBytes;
  static constexpr int kColumns = kRowBytes / size_in_bytes(kType);

  // Adds the columns of one unit; each warp adds 16 rows from `first_row` on. `products` holds the
  // products of these columns in wgmma's layout. Arrives at `empty` once per warp.
  // `scales`: of the lane's rows.
  static __device__ __forceinline__ void add(unsigned unit, int first_row, const float (&scales)[2],
                                             const float* products, Barrier empty, Sums& sums) {
    const int lane = threadIdx.x % 32;
    if constexpr (size_in_bytes(kType) == 2) {
      const int row = first_row + lane % 16;
      unsigned weights[4][4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        load_fragments(unit + row * kRowBytes + (((2 * i + lane / 16) ^ (row % 8)) * 16),
                       weights[i]);
      }
      __syncwarp();
      if (lane == 0) empty.arrive();
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int part = 0; part < 4; ++part) {
          const float pair[2] = {
              Weight::widen(static_cast<unsigned short>(weights[i][part])),
              Weight::widen(static_cast<unsigned short>(weights[i][part] >> 16))};
          const float found[2] = {products[8 * i + 2 * part], products[8 * i + 2 * part + 1]};
          sums.add(part % 2, scales[part % 2], found, pair);
        }
      }
    } else {
      float weights[4][2][2];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int row = first_row + lane / 4 + 8 * h;
          const int chunk = 2 * j + lane % 4 / 2;
          const unsigned from = unit + row * kRowBytes + ((chunk ^ (row % 8)) * 16) + lane % 2 * 8;
          asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                       : "=f"(weights[j][h][0]), "=f"(weights[j][h][1])
                       : "r"(from)
                       : "memory");
        }
      }
      __syncwarp();
      if (lane == 0) empty.arrive();
#pragma unroll
      for (int j = 0; j < 4; ++j) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const float found[2] = {products[4 * j + 2 * h], products[4 * j + 2 * h + 1]};
          sums.add(h, scales[h], found, weights[j][h]);
        }
      }
    }
  }
};

}  // namespace dorajit::kernels
