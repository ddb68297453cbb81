// out = x / sqrt(mean(x^2) + eps) * weight. A block makes ROWS rows, each with THREADS threads. A
// thread keeps its first HELD words of the row in registers and reads what is beyond them a second
// time, from the L1 cache. If EARLY is 1, it also reads the weights of those words before the sum,
// so that both reads overlap. The order of the sum depends on THREADS and VEC, so that configs agree
// within a tolerance and not bit for bit.
template <int VEC>
struct alignas(sizeof(T) * VEC < 16 ? sizeof(T) * VEC : 16) Word {
  T elements[VEC];
};

template <int VEC>
__device__ Word<VEC> word_at(const T* address) {
  return *reinterpret_cast<const Word<VEC>*>(address);
}

template <int VEC>
__device__ float square_of(const Word<VEC>& word) {
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < VEC; ++i) {
    const float value = word.elements[i];
    sum += value * value;
  }
  return sum;
}

template <int THREADS, int ROWS>
__device__ float sum_of_row(float value) {
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) value += __shfl_xor_sync(0xffffffffu, value, lane);
  if constexpr (THREADS == 32) return value;
  __shared__ float sums[ROWS][THREADS / 32];
  if (threadIdx.x % 32 == 0) sums[threadIdx.y][threadIdx.x / 32] = value;
  __syncthreads();
  float total = 0.0f;
#pragma unroll
  for (int warp = 0; warp < THREADS / 32; ++warp) total += sums[threadIdx.y][warp];
  return total;
}

template <int VEC>
__device__ void store_scaled(Word<VEC> word, float factor, const Word<VEC>& weights, T* out) {
#pragma unroll
  for (int i = 0; i < VEC; ++i) {
    const float value = word.elements[i];
    const float scale = weights.elements[i];
    word.elements[i] = value * factor * scale;
  }
  *reinterpret_cast<Word<VEC>*>(out) = word;
}

template <int THREADS, int ROWS, int VEC, int HELD, int EARLY>
__global__ void __launch_bounds__(THREADS* ROWS)
    rms_norm(const T* x, const T* weight, T* out, long long rows, long long cols, float eps) {
  const long long row = static_cast<long long>(blockIdx.x) * ROWS + threadIdx.y;
  // Threads beyond the last row take part in the sum.
  const long long end = row < rows ? cols : 0;
  const T* const from = x + row * cols;
  T* const to = out + row * cols;
  const long long first = threadIdx.x * VEC;
  constexpr long long kStep = THREADS * VEC;

  Word<VEC> held[HELD];
  Word<VEC> weights[HELD];
  float squares = 0.0f;
#pragma unroll
  for (int i = 0; i < HELD; ++i) {
    const long long at = first + i * kStep;
    if (at < end) {
      held[i] = word_at<VEC>(from + at);
      if constexpr (EARLY == 1) weights[i] = word_at<VEC>(weight + at);
    }
  }
#pragma unroll
  for (int i = 0; i < HELD; ++i) {
    if (first + i * kStep < end) squares += square_of(held[i]);
  }
#pragma unroll 4
  for (long long at = first + HELD * kStep; at < end; at += kStep) {
    squares += square_of(word_at<VEC>(from + at));
  }
  const float sum = sum_of_row<THREADS, ROWS>(squares);
  const float factor = rsqrtf(sum / static_cast<float>(cols) + eps);
#pragma unroll
  for (int i = 0; i < HELD; ++i) {
    const long long at = first + i * kStep;
    if (at < end) {
      if constexpr (EARLY == 0) weights[i] = word_at<VEC>(weight + at);
      store_scaled(held[i], factor, weights[i], to + at);
    }
  }
#pragma unroll 4
  for (long long at = first + HELD * kStep; at < end; at += kStep) {
    store_scaled(word_at<VEC>(from + at), factor, word_at<VEC>(weight + at), to + at);
  }
}
