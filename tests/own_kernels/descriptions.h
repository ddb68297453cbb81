// Descriptions of own kernels for tests.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace dorajit::tests {

using Json = nlohmann::ordered_json;

inline constexpr const char* kSwigluSource = R"(template <int BLOCK, int VEC>
__global__ void swiglu(const T* gate, const T* up, T* out, long long n) {
  const long long first = (static_cast<long long>(blockIdx.x) * BLOCK + threadIdx.x) * VEC;
  for (int i = 0; i < VEC; ++i) {
    if (first + i >= n) return;
    const float g = gate[first + i];
    out[first + i] = g / (1.0f + __expf(-g)) * static_cast<float>(up[first + i]);
  }
}
)";

inline Json swiglu() {
  return {{"name", "swiglu"},
          {"source", kSwigluSource},
          {"entry", "swiglu<BLOCK, VEC>"},
          {"arguments",
           {{"gate", "in", "T[n]"}, {"up", "in", "T[n]"}, {"out", "out", "T[n]"}, {"n", "int64"}}},
          {"types", {{"T", {"float32", "bfloat16", "float16"}}}},
          {"parameters", {{"BLOCK", {64, 128, 256, 512}}, {"VEC", {1, 2, 4, 8}}}},
          {"default", {{"BLOCK", 256}, {"VEC", 1}}},
          {"constraint", "n % VEC == 0"},
          {"grid", "ceil_div(n, BLOCK * VEC)"},
          {"block", "BLOCK"},
          {"shared_memory", "0"},
          {"key", {"T", "bucket(n)"}},
          {"tolerance", nullptr}};
}

}  // namespace dorajit::tests
