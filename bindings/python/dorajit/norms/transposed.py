"""Copies of transposed matrices on a GPU, whose rows vector loads and the copy engine take.

PyTorch's copy of a transposed matrix takes three to five times as long as the bytes need, and a row of an odd size, as
the vocabulary of 50257 gives, keeps the norm's kernel from vector loads.
"""

import functools

import torch

from dorajit import errors
from dorajit.own_kernels import Kernel

_VECTOR = 8  # elements: 16 bytes of the narrowest type
_TILE = 64
_THREADS = 256
_SOURCE = """
struct alignas(16) Word {
  T elements[16 / sizeof(T)];
};

// A program transposes a tile. Its pitch of an odd number of words keeps columns of it in different banks.
template <int THREADS, int TILE>
__global__ void __launch_bounds__(THREADS)
    transpose(const T* x, T* out, long long cols, long long rows, long long pitch) {
  __shared__ T tile[TILE][TILE + (sizeof(T) == 2 ? 2 : 1)];
  constexpr int kSteps = TILE * TILE / THREADS;
  const long long first_col = static_cast<long long>(blockIdx.x) * TILE;
  const long long first_row = static_cast<long long>(blockIdx.y) * TILE;
  T loaded[kSteps];
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
    const long long col = first_col + (i * THREADS + threadIdx.x) / TILE;
    const long long row = first_row + threadIdx.x % TILE;
    loaded[i] = col < cols && row < rows ? x[col * rows + row] : T(0.0f);
  }
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
    tile[threadIdx.x % TILE][(i * THREADS + threadIdx.x) / TILE] = loaded[i];
  }
  __syncthreads();
  constexpr int kPerWord = 16 / sizeof(T);
  constexpr int kWordsOfRow = TILE / kPerWord;
#pragma unroll
  for (int i = 0; i < kSteps / kPerWord; ++i) {
    const int in_row = (i * THREADS + threadIdx.x) / kWordsOfRow;
    const int in_col = threadIdx.x % kWordsOfRow * kPerWord;
    const long long row = first_row + in_row;
    const long long col = first_col + in_col;
    if (row >= rows || col >= pitch) continue;
    Word word;
#pragma unroll
    for (int j = 0; j < kPerWord; ++j) word.elements[j] = tile[in_row][in_col + j];
    *reinterpret_cast<Word*>(out + row * pitch + col) = word;
  }
}
"""


@functools.cache
def _kernel():
    return Kernel(
        name="transpose", source=_SOURCE, entry=f"transpose<{_THREADS}, {_TILE}>",
        arguments=[("x", "in", "T[cols, rows]"), ("out", "out", "T[rows, pitch]"), ("cols", "int64"), ("rows", "int64"),
                   ("pitch", "int64")],
        types={"T": ["bfloat16", "float16", "float32", "float64"]},
        grid=[f"ceil_div(cols, {_TILE})", f"ceil_div(rows, {_TILE})"], block=str(_THREADS))


def with_rows(matrix):
    """A copy of a matrix of a CUDA device, [rows, cols], with contiguous rows. Columns of zeros complete the last vector
    of each row: the shape is [rows, pitch]. Copied by PyTorch if the kernel cannot be launched."""
    rows, cols = matrix.shape
    pitch = -(-cols // _VECTOR) * _VECTOR
    if matrix.stride(0) == 1 and matrix.stride(1) == rows:
        made = matrix.new_empty(rows, pitch)
        try:
            _kernel()(matrix.t(), made, cols, rows, pitch)
            return made
        except (errors.Error, TypeError, ValueError):
            pass
    return matrix.contiguous() if pitch == cols else torch.nn.functional.pad(matrix, (0, pitch - cols))
