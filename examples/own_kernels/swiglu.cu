// out = silu(gate) * up. A thread takes VEC neighbouring elements, in words of up to 16 bytes.
template <int VEC>
struct alignas(sizeof(T) * VEC < 16 ? sizeof(T) * VEC : 16) Word {
  T elements[VEC];
};

template <int BLOCK, int VEC>
__global__ void __launch_bounds__(BLOCK) swiglu(const T* gate, const T* up, T* out, long long n) {
  const long long first = (static_cast<long long>(blockIdx.x) * BLOCK + threadIdx.x) * VEC;
  if (first >= n) return;
  const Word<VEC> gates = *reinterpret_cast<const Word<VEC>*>(gate + first);
  const Word<VEC> ups = *reinterpret_cast<const Word<VEC>*>(up + first);
  Word<VEC> products;
#pragma unroll
  for (int i = 0; i < VEC; ++i) {
    const float g = gates.elements[i];
    const float u = ups.elements[i];
    products.elements[i] = g / (1.0f + __expf(-g)) * u;
  }
  *reinterpret_cast<Word<VEC>*>(out + first) = products;
}
