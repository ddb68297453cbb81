// Values derived from the sizes of a call or a problem.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "kernel_templates/registry.h"

namespace dorajit::kernels {

// The sizes with derived dimensions filled in. Channels per row: the largest power of two, up to
// 256, that divides the number of rows.
Sizes with_derived(const Variant& variant, Sizes sizes);

// The number of rows of an operand (1 for a vector), and the number of elements in a row.
inline std::int64_t num_rows(const OperandShape& shape, const Sizes& sizes) {
  return shape.is_matrix() ? sizes[static_cast<std::size_t>(shape.outer)] : 1;
}
// The largest number where the product of sizes is beyond 64 bits.
inline std::int64_t row_length(const OperandShape& shape, const Sizes& sizes) {
  std::int64_t length = sizes[static_cast<std::size_t>(shape.inner)];
  for (const int dimension : shape.leading) {
    if (__builtin_mul_overflow(length, sizes[static_cast<std::size_t>(dimension)], &length)) {
      return std::numeric_limits<std::int64_t>::max();
    }
  }
  return length;
}

// The elements of all operands together.
double num_elements(const Variant& variant, const Sizes& sizes);

// Whether every output is empty, so that there is nothing to compute.
bool writes_nothing(const Variant& variant, const Sizes& sizes);

// Workspace size, in bytes, that is sufficient for every config of the variant; 0 if it needs none.
std::int64_t workspace_bytes(const Variant& variant, const Sizes& sizes);

// "64 rows x 4096 cols"; derived dimensions are left out.
std::string to_text(const Operation& operation, const Sizes& sizes);

}  // namespace dorajit::kernels
