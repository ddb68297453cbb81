// out[j][i] = x[i][j] through a tile in shared memory, so that both sides are read and written
// along their rows, VEC neighbouring elements for each thread at once. PAD elements more in each
// row keep a column of the tile from lying in one bank.
template <int VEC>
struct alignas(sizeof(T) * VEC < 16 ? sizeof(T) * VEC : 16) Word {
  T elements[VEC];
};

template <int TILE, int BLOCK, int VEC, int PAD>
__global__ void __launch_bounds__(BLOCK)
    transpose(const T* x, T* out, long long rows, long long cols) {
  __shared__ T tile[TILE][TILE + PAD];
  constexpr int kWords = TILE / VEC;      // of a row of the tile
  constexpr int kLines = BLOCK / kWords;  // rows that the block moves at once
  const int place = threadIdx.x % kWords * VEC;
  const int line = threadIdx.x / kWords;
  const long long from_row = static_cast<long long>(blockIdx.y) * TILE;
  const long long from_col = static_cast<long long>(blockIdx.x) * TILE;
#pragma unroll
  for (int i = 0; i < TILE; i += kLines) {
    const long long row = from_row + i + line;
    const long long col = from_col + place;
    if (row < rows && col < cols) {
      const Word<VEC> word = *reinterpret_cast<const Word<VEC>*>(x + row * cols + col);
#pragma unroll
      for (int j = 0; j < VEC; ++j) tile[i + line][place + j] = word.elements[j];
    }
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < TILE; i += kLines) {
    const long long row = from_col + i + line;
    const long long col = from_row + place;
    if (row < cols && col < rows) {
      Word<VEC> word;
#pragma unroll
      for (int j = 0; j < VEC; ++j) word.elements[j] = tile[place + j][i + line];
      *reinterpret_cast<Word<VEC>*>(out + row * rows + col) = word;
    }
  }
}
