// out[j][i] = x[i][j] through tiles in shared memory, so that both sides are read and written along
// their rows. PAD columns keep a column of a tile from lying in one bank.
template <int TILE, int ROWS, int PAD>
__global__ void transpose(const T* x, T* out, long long rows, long long cols) {
  extern __shared__ unsigned char memory[];
  T* tile = reinterpret_cast<T*>(memory);
  const long long from_row = static_cast<long long>(blockIdx.y) * TILE;
  const long long from_col = static_cast<long long>(blockIdx.x) * TILE;
  for (int i = threadIdx.y; i < TILE; i += ROWS) {
    const long long row = from_row + i;
    const long long col = from_col + threadIdx.x;
    if (row < rows && col < cols) tile[i * (TILE + PAD) + threadIdx.x] = x[row * cols + col];
  }
  __syncthreads();
  for (int i = threadIdx.y; i < TILE; i += ROWS) {
    const long long row = from_col + i;
    const long long col = from_row + threadIdx.x;
    if (row < cols && col < rows) out[row * rows + col] = tile[threadIdx.x * (TILE + PAD) + i];
  }
}
