// Descriptions of own kernels for tests.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace dorajit::tests {

using Json = nlohmann::ordered_json;

inline const Json kErased(Json::value_t::discarded);

// A JSON pointer, whose last part may be "-" to append, and the new value.
using Change = std::pair<std::string, Json>;

inline Json with(Json json, const std::vector<Change>& changes) {
  for (const auto& [path, value] : changes) {
    const Json::json_pointer at(path);
    if (value.is_discarded()) {
      json[at.parent_pointer()].erase(at.back());
    } else {
      json[at] = value;
    }
  }
  return json;
}

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

inline constexpr const char* kGatherSource = R"(template <int BLOCK>
__global__ void gather(const I* ids, const T* table, T* out, long long n, long long rows,
                       long long width) {
  const long long at = static_cast<long long>(blockIdx.x) * BLOCK + threadIdx.x;
  if (at >= n * width) return;
  out[at] = table[ids[at / width] * width + at % width];
}
)";

// Rows of a table by their numbers, so that a number beyond the last row is a fault.
inline Json gather() {
  return {{"name", "gather"},
          {"source", kGatherSource},
          {"entry", "gather<BLOCK>"},
          {"arguments",
           {{"ids", "in", "I[n]"},
            {"table", "in", "T[rows, width]"},
            {"out", "out", "T[n, width]"},
            {"n", "int64"},
            {"rows", "int64"},
            {"width", "int64"}}},
          {"types", {{"I", {"int64", "int32"}}, {"T", {"float32", "bfloat16", "int32"}}}},
          {"parameters", {{"BLOCK", {64, 128, 256}}}},
          {"default", {{"BLOCK", 128}}},
          {"grid", "ceil_div(n * width, BLOCK)"},
          {"block", "BLOCK"},
          {"key", {"I", "T", "bucket(n)", "bucket(rows)", "width"}},
          {"limits", {{"ids", "rows"}}}};
}

}  // namespace dorajit::tests
