// A kernel over matrices whose rows have strides.
#pragma once

#include "tests/own_kernels/descriptions.h"

namespace dorajit::tests {

inline constexpr const char* kScaleRowsSource = R"(template <int BLOCK, int VEC>
__global__ void scale_rows(const T* x, T* out, long long rows, long long cols, long long x_stride,
                           long long out_stride) {
  const long long row = blockIdx.x;
  for (long long c = threadIdx.x * VEC; c < cols; c += BLOCK * VEC) {
    for (int i = 0; i < VEC; ++i) out[row * out_stride + c + i] = 2.0f * x[row * x_stride + c + i];
  }
}
)";

inline Json strided_kernel() {
  return {{"name", "scale_rows"},
          {"source", kScaleRowsSource},
          {"entry", "scale_rows<BLOCK, VEC>"},
          {"arguments",
           {{"x", "in", "T[rows:x_stride, cols]"},
            {"out", "out", "T[rows:out_stride, cols]"},
            {"rows", "int64"},
            {"cols", "int64"},
            {"x_stride", "int64"},
            {"out_stride", "int64"}}},
          {"types", {{"T", {"float32", "bfloat16"}}}},
          {"parameters", {{"BLOCK", {128, 256}}, {"VEC", {1, 2, 4}}}},
          {"default", {{"BLOCK", 128}, {"VEC", 1}}},
          {"constraint", "cols % VEC == 0 and x_stride % VEC == 0 and out_stride % VEC == 0"},
          {"grid", "rows"},
          {"block", "BLOCK"},
          {"key", {"T", "bucket(rows)", "cols"}}};
}

}  // namespace dorajit::tests
