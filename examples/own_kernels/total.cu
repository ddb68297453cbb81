// The sum of all elements by a grid that fills the device: PER_SM blocks for each multiprocessor,
// each of which keeps its sum in `partials`. The second launch adds these.

constexpr int kMostBlocks = 2048;

template <int THREADS>
__device__ float sum_of_block(float value) {
  __shared__ float warps[THREADS / 32];
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
  __syncthreads();
  float total = 0.0f;
  for (int i = 0; i < THREADS / 32; ++i) total += warps[i];
  return total;
}

template <int THREADS, int VEC>
__global__ void add_shares(const T* x, float* out, float* partials, long long n) {
  const long long stride = static_cast<long long>(gridDim.x) * THREADS * VEC;
  float share = 0.0f;
  for (long long first = (static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x) * VEC; first < n;
       first += stride) {
#pragma unroll
    for (int i = 0; i < VEC; ++i) share += static_cast<float>(x[first + i]);
  }
  const float total = sum_of_block<THREADS>(share);
  if (threadIdx.x == 0) partials[blockIdx.x] = total;
  // The second launch does not know how many blocks there were.
  for (int i = gridDim.x + threadIdx.x; blockIdx.x == 0 && i < kMostBlocks; i += THREADS) partials[i] = 0.0f;
}

__global__ void add_partials(const T* x, float* out, float* partials, long long n) {
  float share = 0.0f;
  for (int i = threadIdx.x; i < kMostBlocks; i += 256) share += partials[i];
  const float total = sum_of_block<256>(share);
  if (threadIdx.x == 0) out[0] = total;
}
