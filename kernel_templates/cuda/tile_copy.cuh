// Copies of 16-bit tiles from global to shared memory by a program's threads: sm_80 and newer.
#pragma once

#include "arguments.h"

namespace dorajit::kernels {

// Whether 16-bit rows can be read 16 bytes at a time. The alignment class does not cover operands
// with short rows, so kernels check this themselves.
__device__ __forceinline__ bool has_aligned_rows(const OperandArgument& operand) {
  return ((reinterpret_cast<unsigned long long>(operand.data) |
           static_cast<unsigned long long>(operand.row_stride * 2)) &
          15) == 0;
}

// Rows in shared memory have the order of the matrix.
struct RowsInOrder {
  static __device__ __forceinline__ constexpr int place(int row) { return row; }
};

// How kThreads threads copy tiles of kRows by kColumns elements that begin in one row of a matrix.
// In shared memory, rows are kPitch elements apart; row i of the tile is row Order::place(i), which
// may only permute the bits of i.
template <int kThreads, int kRows, int kColumns, int kPitch, class Order = RowsInOrder>
struct TileCopy {
  static constexpr int kChunks = kColumns / 8;  // of 16 bytes
  static constexpr int kRowsAtOnce = kThreads / kChunks;
  static constexpr int kCopies = kRows > kRowsAtOnce ? kRows / kRowsAtOnce : 1;  // per thread
  static_assert(kCopies <= 32, "`there` has one bit per copy");
  static_assert(kThreads % kChunks == 0, "a thread copies the same columns of all its rows");
  static_assert(kRows % kRowsAtOnce == 0 || kRowsAtOnce % kRows == 0,
                "threads must share the rows evenly");

  const unsigned short* from;  // this thread's first chunk, in the first column of the matrix
  long long step;              // from one of its rows to the next
  unsigned there;              // bit i: the i-th of its rows lies in the matrix
  long long columns;           // of the matrix, from its chunk on
  unsigned into;               // offset of its chunk in the tile, in bytes
  bool is_aligned;

  __device__ __forceinline__ TileCopy(const OperandArgument& operand, long long row, long long rows,
                                      long long width)
      : step(kRowsAtOnce * operand.row_stride), there(0), is_aligned(has_aligned_rows(operand)) {
    const int first_row = static_cast<int>(threadIdx.x) / kChunks;
    const int column = static_cast<int>(threadIdx.x) % kChunks * 8;
    from = static_cast<const unsigned short*>(operand.data) +
           (row + first_row) * operand.row_stride + column;
    columns = width - column;
    into = (Order::place(first_row) * kPitch + column) * 2;
    const long long left = rows - row - first_row;
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      if (i * kRowsAtOnce < left) there |= 1U << i;
    }
  }

  // Copies a chunk element by element.
  static __device__ __forceinline__ void copy_chunk(const unsigned short* chunk, long long left,
                                                    unsigned to) {
    unsigned words[4] = {0, 0, 0, 0};
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      if (e < left) words[e / 2] |= static_cast<unsigned>(chunk[e]) << (e % 2 * 16);
    }
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(words[0]), "r"(words[1]),
                 "r"(words[2]), "r"(words[3])
                 : "memory");
  }

  // Starts to copy the tile that begins in column `column`; elements beyond the matrix are set to
  // zero. Aligned data is copied asynchronously.
  __device__ __forceinline__ void start(long long column, unsigned to) const {
    if (kRowsAtOnce > kRows && static_cast<int>(threadIdx.x) / kChunks >= kRows) return;
    const long long left = columns - column;
    if (is_aligned && (left >= 8 || left <= 0)) {
      const unsigned rows = left > 0 ? there : 0;
#pragma unroll
      for (int i = 0; i < kCopies; ++i) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                         to + into + Order::place(i * kRowsAtOnce) * kPitch * 2),
                     "l"(from + i * step + column), "r"((rows >> i & 1U) * 16)
                     : "memory");
      }
      return;
    }
    const unsigned short* chunk = from + column;
#pragma unroll 1
    for (int i = 0; i < kCopies; ++i, chunk += step) {
      copy_chunk(chunk, (there >> i & 1U) != 0 ? left : 0,
                 to + into + Order::place(i * kRowsAtOnce) * kPitch * 2);
    }
  }
};

// Commits this thread's asynchronous copies since the last commit as one group.
__device__ __forceinline__ void end_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until all but the last kPending groups of this thread have arrived.
template <int kPending>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace dorajit::kernels
