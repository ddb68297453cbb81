// out = silu(gate) * up, VEC neighbouring elements for each thread.
template <int BLOCK, int VEC>
__global__ void swiglu(const T* gate, const T* up, T* out, long long n) {
  const long long first = (static_cast<long long>(blockIdx.x) * BLOCK + threadIdx.x) * VEC;
#pragma unroll
  for (int i = 0; i < VEC; ++i) {
    if (first + i >= n) return;
    const float g = gate[first + i];
    const float u = up[first + i];
    out[first + i] = g / (1.0f + __expf(-g)) * u;
  }
}
