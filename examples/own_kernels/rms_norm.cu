// out = x / sqrt(mean(x^2) + eps) * weight, one block for each row. A thread keeps its first HELD
// words of the row in registers and reads what is beyond them a second time, from the L1 cache. The
// order of the sum depends on BLOCK and VEC, so that configs agree within a tolerance and not bit
// for bit.
template <int VEC>
struct alignas(sizeof(T) * VEC < 16 ? sizeof(T) * VEC : 16) Word {
  T elements[VEC];
};

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

template <int BLOCK>
__device__ float sum_of_block(float value) {
  __shared__ float sums[BLOCK / 32];
  for (int lane = 16; lane > 0; lane /= 2) value += __shfl_xor_sync(0xffffffffu, value, lane);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;
  __syncthreads();
  float total = 0.0f;
#pragma unroll
  for (int warp = 0; warp < BLOCK / 32; ++warp) total += sums[warp];
  return total;
}

template <int VEC>
__device__ void store_scaled(Word<VEC> word, float factor, const T* weight, T* out) {
  const Word<VEC> weights = *reinterpret_cast<const Word<VEC>*>(weight);
#pragma unroll
  for (int i = 0; i < VEC; ++i) {
    const float value = word.elements[i];
    const float scale = weights.elements[i];
    word.elements[i] = value * factor * scale;
  }
  *reinterpret_cast<Word<VEC>*>(out) = word;
}

template <int BLOCK, int VEC, int HELD>
__global__ void __launch_bounds__(BLOCK)
    rms_norm(const T* x, const T* weight, T* out, long long cols, float eps) {
  const T* const row = x + blockIdx.x * cols;
  T* const result = out + blockIdx.x * cols;
  const long long first = threadIdx.x * VEC;
  constexpr long long kStep = BLOCK * VEC;
  const auto word_at = [&](long long at) { return *reinterpret_cast<const Word<VEC>*>(row + at); };

  Word<VEC> held[HELD];
  float squares = 0.0f;
#pragma unroll
  for (int i = 0; i < HELD; ++i) {
    if (first + i * kStep < cols) held[i] = word_at(first + i * kStep);
  }
#pragma unroll
  for (int i = 0; i < HELD; ++i) {
    if (first + i * kStep < cols) squares += square_of(held[i]);
  }
#pragma unroll 4
  for (long long at = first + HELD * kStep; at < cols; at += kStep) {
    squares += square_of(word_at(at));
  }
  const float factor = rsqrtf(sum_of_block<BLOCK>(squares) / static_cast<float>(cols) + eps);
#pragma unroll
  for (int i = 0; i < HELD; ++i) {
    const long long at = first + i * kStep;
    if (at < cols) store_scaled(held[i], factor, weight + at, result + at);
  }
#pragma unroll 4
  for (long long at = first + HELD * kStep; at < cols; at += kStep) {
    store_scaled(word_at(at), factor, weight + at, result + at);
  }
}
