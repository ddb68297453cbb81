// y = W x for a W of 4-bit integers: two in a byte, the lower one first, of which 8 is zero; each
// group of GROUP columns of a row has a scale. A warp computes ROWS rows; WARPS warps are a block.

template <int WARPS, int ROWS, int GROUP>
__global__ void int4_gemv(const unsigned char* packed, const T* scales, const T* x, T* y, long long rows,
                          long long cols) {
  const long long first = (static_cast<long long>(blockIdx.x) * WARPS + threadIdx.y) * ROWS;
  float sums[ROWS] = {};
  for (long long c = threadIdx.x * 8; c < cols; c += 32 * 8) {  // a thread reads 4 bytes, 8 columns
    float inputs[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) inputs[i] = x[c + i];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      if (first + r >= rows) break;
      const unsigned bits = *reinterpret_cast<const unsigned*>(packed + ((first + r) * cols + c) / 2);
      float share = 0.0f;
#pragma unroll
      for (int i = 0; i < 8; ++i) share += static_cast<float>(static_cast<int>(bits >> (4 * i) & 15u) - 8) * inputs[i];
      sums[r] += share * static_cast<float>(scales[((first + r) * cols + c) / GROUP]);
    }
  }
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    for (int step = 16; step > 0; step /= 2) sums[r] += __shfl_xor_sync(0xffffffffu, sums[r], step);
    if (threadIdx.x == 0 && first + r < rows) y[first + r] = sums[r];
  }
}
