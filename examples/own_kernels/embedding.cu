// out[i] = table[ids[i]]: the rows of a table by their numbers, as an embedding takes those of its
// tokens. A block copies ROWS rows, each with THREADS threads, in words of VEC elements.
template <int VEC>
struct alignas(sizeof(T) * VEC < 16 ? sizeof(T) * VEC : 16) Word {
  T elements[VEC];
};

template <int THREADS, int ROWS, int VEC>
__global__ void __launch_bounds__(THREADS* ROWS)
    embedding(const T* table, const I* ids, T* out, long long n, long long cols) {
  const long long i = static_cast<long long>(blockIdx.x) * ROWS + threadIdx.y;
  if (i >= n) return;
  const T* const from = table + static_cast<long long>(ids[i]) * cols;
  T* const to = out + i * cols;
#pragma unroll 4
  for (long long at = threadIdx.x * VEC; at < cols; at += THREADS * VEC) {
    *reinterpret_cast<Word<VEC>*>(to + at) = *reinterpret_cast<const Word<VEC>*>(from + at);
  }
}
