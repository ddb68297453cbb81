// out = x / sqrt(mean(x^2) + eps) * weight, one block for each row. The order of the sum depends on
// BLOCK and VEC, so that configs agree within a tolerance and not bit for bit.
template <int BLOCK, int VEC>
__global__ void rms_norm(const T* x, const T* weight, T* out, long long cols, float eps) {
  __shared__ float sums[BLOCK / 32];
  const T* row = x + blockIdx.x * cols;
  float sum = 0.0f;
  for (long long first = threadIdx.x * VEC; first < cols; first += BLOCK * VEC) {
#pragma unroll
    for (int i = 0; i < VEC; ++i) {
      const float value = row[first + i];
      sum += value * value;
    }
  }
  for (int lane = 16; lane > 0; lane /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lane);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
  __syncthreads();
  float total = 0.0f;
  for (int warp = 0; warp < BLOCK / 32; ++warp) total += sums[warp];
  const float factor = rsqrtf(total / static_cast<float>(cols) + eps);
  T* result = out + blockIdx.x * cols;
  for (long long first = threadIdx.x * VEC; first < cols; first += BLOCK * VEC) {
#pragma unroll
    for (int i = 0; i < VEC; ++i) {
      const float value = row[first + i];
      const float scale = weight[first + i];
      result[first + i] = value * factor * scale;
    }
  }
}
