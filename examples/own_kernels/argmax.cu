// The index of the largest element of each row, the first one of equal elements. THREADS threads for
// a row. Rows begin `row_stride` elements apart, so that x may be some columns of a wider matrix.

template <int THREADS, int VEC>
__global__ void argmax(const T* x, long long* out, long long rows, long long cols, long long row_stride) {
  __shared__ float values[THREADS / 32];
  __shared__ long long places[THREADS / 32];
  const T* row = x + static_cast<long long>(blockIdx.x) * row_stride;
  float best = row[0];
  long long place = 0;
  for (long long first = threadIdx.x * VEC; first < cols; first += THREADS * VEC) {
#pragma unroll
    for (int i = 0; i < VEC; ++i) {
      const float value = row[first + i];
      if (value > best) {
        best = value;
        place = first + i;
      }
    }
  }
  const auto take = [&](float value, long long other) {
    if (value > best || (value == best && other < place)) {
      best = value;
      place = other;
    }
  };
  for (int step = 16; step > 0; step /= 2) {
    const float value = __shfl_xor_sync(0xffffffffu, best, step);
    const long long other = __shfl_xor_sync(0xffffffffu, place, step);
    take(value, other);
  }
  if (threadIdx.x % 32 == 0) {
    values[threadIdx.x / 32] = best;
    places[threadIdx.x / 32] = place;
  }
  __syncthreads();
  if (threadIdx.x > 0) return;
  for (int i = 1; i < THREADS / 32; ++i) take(values[i], places[i]);
  out[blockIdx.x] = place;
}
