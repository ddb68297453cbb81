// A direct convolution with unit stride: y[n][k] = sum over c, r, s of x[n][c] * weight[k][c]. A
// thread has PIXELS neighbouring outputs of CHANNELS channels; STAGE brings the weights of an input
// channel to shared memory. Every config adds in the order c, r, s.
template <int TILE_X, int TILE_Y, int CHANNELS, int PIXELS, int STAGE>
__global__ void conv2d(const T* x, const T* weight, T* y, int c, int h, int w, int k, int r, int s,
                       int oh, int ow, int pad) {
  extern __shared__ float staged[];
  const int groups = (k + CHANNELS - 1) / CHANNELS;
  const int image = blockIdx.z / groups;
  const int first_k = blockIdx.z % groups * CHANNELS;
  const int oy = blockIdx.y * TILE_Y + threadIdx.y;
  const int ox = (blockIdx.x * TILE_X + threadIdx.x) * PIXELS;
  const int taps = r * s;
  float sums[CHANNELS][PIXELS] = {};
  for (int channel = 0; channel < c; ++channel) {
    if constexpr (STAGE != 0) {
      __syncthreads();
      for (int i = threadIdx.y * TILE_X + threadIdx.x; i < CHANNELS * taps; i += TILE_X * TILE_Y) {
        const int q = first_k + i / taps;
        const long long at = (static_cast<long long>(q) * c + channel) * taps + i % taps;
        staged[i] = q < k ? static_cast<float>(weight[at]) : 0.0f;
      }
      __syncthreads();
    }
    const T* plane = x + (static_cast<long long>(image) * c + channel) * h * w;
    for (int tap = 0; tap < taps; ++tap) {
      const int iy = oy + tap / s - pad;
#pragma unroll
      for (int p = 0; p < PIXELS; ++p) {
        const int ix = ox + p + tap % s - pad;
        const bool is_inside = iy >= 0 && iy < h && ix >= 0 && ix < w;
        const float value = is_inside ? static_cast<float>(plane[iy * w + ix]) : 0.0f;
#pragma unroll
        for (int q = 0; q < CHANNELS; ++q) {
          float factor = 0.0f;
          if constexpr (STAGE != 0) {
            factor = staged[q * taps + tap];
          } else if (first_k + q < k) {
            factor = weight[(static_cast<long long>(first_k + q) * c + channel) * taps + tap];
          }
          sums[q][p] = fmaf(factor, value, sums[q][p]);
        }
      }
    }
  }
  for (int q = 0; q < CHANNELS && first_k + q < k; ++q) {
    for (int p = 0; p < PIXELS; ++p) {
      if (oy >= oh || ox + p >= ow) continue;
      y[((static_cast<long long>(image) * k + first_k + q) * oh + oy) * ow + ox + p] = sums[q][p];
    }
  }
}
