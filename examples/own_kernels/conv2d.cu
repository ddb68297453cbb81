// out[i, j] = sum of image[i + a, j + b] * filter[a, b]: a convolution (a correlation, as neural
// networks have it) of one channel without padding.
//
// A block makes (BLOCK_Y * TILE_Y) x (BLOCK_X * TILE_X) outputs from a part of the image in shared
// memory. A thread makes TILE_Y outputs below each other, which share most of the column that they
// are made of, in TILE_X columns, BLOCK_X apart.
template <int BLOCK_X, int BLOCK_Y, int TILE_X, int TILE_Y, int FILTER>
__global__ void __launch_bounds__(BLOCK_X* BLOCK_Y)
    conv2d(const float* image, const float* filter, float* out, int height, int width) {
  constexpr int kRows = BLOCK_Y * TILE_Y + FILTER - 1;
  constexpr int kColumns = BLOCK_X * TILE_X + FILTER - 1;
  constexpr int kReach = TILE_Y + FILTER - 1;  // rows that a thread's outputs are made of
  extern __shared__ float memory[];
  float* const part = memory;                        // [kRows, kColumns]
  float* const weights = memory + kRows * kColumns;  // [FILTER, FILTER]
  const int first_row = blockIdx.y * BLOCK_Y * TILE_Y;
  const int first_column = blockIdx.x * BLOCK_X * TILE_X;
  const int in_height = height + FILTER - 1;
  const int in_width = width + FILTER - 1;
  const int thread = threadIdx.y * BLOCK_X + threadIdx.x;
  for (int i = thread; i < FILTER * FILTER; i += BLOCK_X * BLOCK_Y) weights[i] = filter[i];
  for (int i = threadIdx.y; i < kRows; i += BLOCK_Y) {
    for (int j = threadIdx.x; j < kColumns; j += BLOCK_X) {
      const int row = first_row + i;
      const int column = first_column + j;
      const bool is_inside = row < in_height && column < in_width;
      part[i * kColumns + j] =
          is_inside ? image[static_cast<long long>(row) * in_width + column] : 0.0f;
    }
  }
  __syncthreads();
  float sums[TILE_X][TILE_Y] = {};
  const float* const corner = part + threadIdx.y * TILE_Y * kColumns + threadIdx.x;
#pragma unroll 1
  for (int b = 0; b < FILTER; ++b) {
    float column[TILE_X][kReach];
#pragma unroll
    for (int j = 0; j < TILE_X; ++j) {
#pragma unroll
      for (int i = 0; i < kReach; ++i) column[j][i] = corner[i * kColumns + j * BLOCK_X + b];
    }
#pragma unroll
    for (int a = 0; a < FILTER; ++a) {
      const float weight = weights[a * FILTER + b];
#pragma unroll
      for (int j = 0; j < TILE_X; ++j) {
#pragma unroll
        for (int i = 0; i < TILE_Y; ++i) sums[j][i] += weight * column[j][i + a];
      }
    }
  }
#pragma unroll
  for (int j = 0; j < TILE_X; ++j) {
#pragma unroll
    for (int i = 0; i < TILE_Y; ++i) {
      const int row = first_row + threadIdx.y * TILE_Y + i;
      const int column = first_column + threadIdx.x + j * BLOCK_X;
      if (row < height && column < width) {
        out[static_cast<long long>(row) * width + column] = sums[j][i];
      }
    }
  }
}
