// out[j][i] = x[i][j] through a tile of x in shared memory, so that both sides are accessed along
// their rows, in words of VEC elements. A thread reads VEC words below each other, transposes this
// square in its registers, and puts it into the tile as words of the output.
//
// Word i of line j of the tile lies at place i ^ (j / VEC): otherwise the words that neighbouring
// threads put into the tile, VEC lines apart, would lie in the same banks.
//
// Blocks go down GROUP tiles before they go right, so that what is written at a time are longer
// parts of the output's rows.
template <int VEC>
struct alignas(sizeof(T) * VEC < 16 ? sizeof(T) * VEC : 16) Word {
  T elements[VEC];
};

template <int ROWS, int COLS, int BLOCK, int VEC, int GROUP>
__global__ void __launch_bounds__(BLOCK)
    transpose(const T* x, T* out, long long rows, long long cols) {
  constexpr int kDown = ROWS / VEC;    // squares of the tile
  constexpr int kAcross = COLS / VEC;  // also words of a row of the tile
  __shared__ Word<VEC> tile[COLS][kDown];
  const auto place = [](int line, int word) { return word ^ (line / VEC % kDown); };

  const unsigned tiles_across = (cols + COLS - 1) / COLS;
  const unsigned tiles_down = (rows + ROWS - 1) / ROWS;
  const unsigned group = blockIdx.x / (GROUP * tiles_across);
  const unsigned in_group = blockIdx.x % (GROUP * tiles_across);
  const unsigned height = min(GROUP, tiles_down - group * GROUP);
  const long long from_row = static_cast<long long>(group * GROUP + in_group % height) * ROWS;
  const long long from_col = static_cast<long long>(in_group / height) * COLS;

#pragma unroll
  for (int first = 0; first < kDown * kAcross; first += BLOCK) {
    const int square = first + threadIdx.x;
    const int down = square / kAcross;
    const int across = square % kAcross;
    const long long row = from_row + down * VEC;
    const long long col = from_col + across * VEC;
    if (row >= rows || col >= cols) continue;
    Word<VEC> words[VEC];
#pragma unroll
    for (int i = 0; i < VEC; ++i) {
      words[i] = *reinterpret_cast<const Word<VEC>*>(x + (row + i) * cols + col);
    }
#pragma unroll
    for (int j = 0; j < VEC; ++j) {
      Word<VEC> column;
#pragma unroll
      for (int i = 0; i < VEC; ++i) column.elements[i] = words[i].elements[j];
      tile[across * VEC + j][place(across * VEC + j, down)] = column;
    }
  }
  __syncthreads();
#pragma unroll
  for (int first = 0; first < COLS * kDown; first += BLOCK) {
    const int at = first + threadIdx.x;
    const int line = at / kDown;
    const int word = at % kDown;
    const long long row = from_col + line;
    const long long col = from_row + word * VEC;
    if (row < cols && col < rows) {
      *reinterpret_cast<Word<VEC>*>(out + row * rows + col) = tile[line][place(line, word)];
    }
  }
}
