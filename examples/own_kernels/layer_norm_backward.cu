// The backward pass of layer norm, in two launches: the first computes d_x row by row and keeps, for
// each block, a row of sums for weight and bias in `partials`; the second adds these.
//
// PARTS blocks of THREADS threads. A thread owns every THREADS-th column, whose sums lie in shared
// memory: 8 bytes per column.

template <int THREADS>
__device__ float2 sum_of_block(float2 value) {
  __shared__ float2 warps[THREADS / 32];
  for (int step = 16; step > 0; step /= 2) {
    value.x += __shfl_xor_sync(0xffffffffu, value.x, step);
    value.y += __shfl_xor_sync(0xffffffffu, value.y, step);
  }
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
  __syncthreads();
  float2 total{0.0f, 0.0f};
  for (int i = 0; i < THREADS / 32; ++i) {
    total.x += warps[i].x;
    total.y += warps[i].y;
  }
  __syncthreads();
  return total;
}

template <int PARTS, int THREADS>
__global__ void layer_norm_backward(const T* d_out, const T* x, const T* weight, const float* mean, const float* rstd,
                                    T* d_x, float* d_weight, float* d_bias, float* partials, long long rows,
                                    long long cols) {
  extern __shared__ float sums[];  // of the weight, then of the bias
  for (long long c = threadIdx.x; c < 2 * cols; c += THREADS) sums[c] = 0.0f;
  __syncthreads();
  for (long long row = blockIdx.x; row < rows; row += PARTS) {
    const long long start = row * cols;
    const float middle = mean[row];
    const float inverse = rstd[row];
    float2 share{0.0f, 0.0f};
    for (long long c = threadIdx.x; c < cols; c += THREADS) {
      const float d = d_out[start + c];
      const float normed = (static_cast<float>(x[start + c]) - middle) * inverse;
      const float scaled = d * static_cast<float>(weight[c]);
      share.x += scaled * normed;
      share.y += scaled;
      sums[c] += d * normed;
      sums[cols + c] += d;
    }
    const float2 total = sum_of_block<THREADS>(share);
    for (long long c = threadIdx.x; c < cols; c += THREADS) {
      const float normed = (static_cast<float>(x[start + c]) - middle) * inverse;
      const float scaled = static_cast<float>(d_out[start + c]) * static_cast<float>(weight[c]);
      d_x[start + c] = inverse * (scaled - (total.x * normed + total.y) / static_cast<float>(cols));
    }
  }
  for (long long c = threadIdx.x; c < 2 * cols; c += THREADS) partials[blockIdx.x * 2 * cols + c] = sums[c];
}

// Blocks of 32 x 16 threads: each adds the parts of 32 columns.
template <int PARTS>
__global__ void add_parts(const T* d_out, const T* x, const T* weight, const float* mean, const float* rstd, T* d_x,
                          float* d_weight, float* d_bias, float* partials, long long rows, long long cols) {
  __shared__ float2 lanes[16][32];
  const long long c = static_cast<long long>(blockIdx.x) * 32 + threadIdx.x;
  float2 total{0.0f, 0.0f};
  if (c < cols) {
    for (int part = threadIdx.y; part < PARTS; part += 16) {
      total.x += partials[part * 2 * cols + c];
      total.y += partials[part * 2 * cols + cols + c];
    }
  }
  lanes[threadIdx.y][threadIdx.x] = total;
  __syncthreads();
  if (threadIdx.y > 0 || c >= cols) return;
  for (int i = 1; i < 16; ++i) {
    total.x += lanes[i][threadIdx.x].x;
    total.y += lanes[i][threadIdx.x].y;
  }
  d_weight[c] = total.x;
  d_bias[c] = total.y;
}
