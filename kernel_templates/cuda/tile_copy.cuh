// Copies of 16-bit tiles from global to shared memory by the threads of a program: sm_80 and newer.
#pragma once

#include "arguments.h"

namespace dorajit::kernels {

// Whether 16-bit rows can be read 16 bytes at a time. The alignment class says nothing of operands
// with short rows, so kernels ask this.
__device__ __forceinline__ bool has_aligned_rows(const OperandArgument& operand) {
  return ((reinterpret_cast<unsigned long long>(operand.data) |
           static_cast<unsigned long long>(operand.row_stride * 2)) &
          15) == 0;
}

// Rows lie in shared memory in the order of the matrix.
struct RowsInOrder {
  static __device__ __forceinline__ int place(int row) { return row; }
};

// How kThreads threads copy a tile of kRows by kColumns elements. Rows lie kPitch elements apart,
// row i of the tile where Order says.
template <int kThreads, int kRows, int kColumns, int kPitch, class Order = RowsInOrder>
struct TileCopy {
  static constexpr int kChunks = kColumns / 8;  // of 16 bytes
  static constexpr int kRowsAtOnce = kThreads / kChunks;
  static_assert(kThreads % kChunks == 0, "a thread has the same columns of each row it copies");

  // From (row, column) of a matrix of rows x columns; what lies beyond it arrives as zeros. Aligned
  // data is copied asynchronously.
  template <bool kIsAligned>
  static __device__ __forceinline__ void start(const OperandArgument& operand, long long row,
                                               long long column, long long rows, long long columns,
                                               unsigned to) {
    const int first_row = static_cast<int>(threadIdx.x) / kChunks;
    const int tile_column = static_cast<int>(threadIdx.x) % kChunks * 8;
    const auto* const data = static_cast<const unsigned short*>(operand.data);
    const long long left = columns - column - tile_column;
    const unsigned short* from =
        data + (row + first_row) * operand.row_stride + column + tile_column;
    const long long step = kRowsAtOnce * operand.row_stride;
#pragma unroll kIsAligned ? 4 : 1
    for (int i = first_row; i < kRows; i += kRowsAtOnce, from += step) {
      const bool is_there = row + i < rows && left > 0;
      const unsigned into = to + (Order::place(i) * kPitch + tile_column) * 2;
      if constexpr (kIsAligned) {
        const int bytes = !is_there ? 0 : left >= 8 ? 16 : static_cast<int>(left) * 2;
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(into),
                     "l"(is_there ? from : data), "r"(bytes)
                     : "memory");
      } else {
        unsigned words[4] = {0, 0, 0, 0};
#pragma unroll
        for (int e = 0; e < 8; ++e) {
          if (is_there && e < left) {
            words[e / 2] |= static_cast<unsigned>(from[e]) << (e % 2 * 16);
          }
        }
        asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(into), "r"(words[0]),
                     "r"(words[1]), "r"(words[2]), "r"(words[3])
                     : "memory");
      }
    }
  }

  // The same of rows whose alignment is found out at run time.
  static __device__ __forceinline__ void start(const OperandArgument& operand, long long row,
                                               long long column, long long rows, long long columns,
                                               unsigned to) {
    if (has_aligned_rows(operand)) {
      start<true>(operand, row, column, rows, columns, to);
    } else {
      start<false>(operand, row, column, rows, columns, to);
    }
  }
};

// Ends the group of the asynchronous copies that this thread has started since the last.
__device__ __forceinline__ void end_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Returns when all groups of this thread but the last kPending have arrived.
template <int kPending>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace dorajit::kernels
