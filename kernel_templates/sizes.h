// Values derived from the sizes of a call or a problem.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "kernel_templates/registry.h"
#include "kernel_templates/spaces.h"

namespace dorajit::kernels {

// The sizes with derived dimensions filled in. Channels per row: the largest power of two, up to
// 256, that divides the number of rows. Strides: see Template::derive_sizes().
Sizes with_derived(const Variant& variant, Sizes sizes, int vector_width = kMaxVectorWidth);

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

// The dimensions of an operand with is_exact, as indices into the sizes.
inline std::size_t rank_of(const OperandShape& shape) { return shape.leading.size() + 1; }
inline std::size_t dimension_at(const OperandShape& shape, std::size_t place) {
  return static_cast<std::size_t>(place < shape.leading.size() ? shape.leading[place]
                                                               : shape.inner);
}

// Elements from one of that dimension to the next. The largest number beyond 64 bits.
std::int64_t stride_at(const OperandShape& shape, const Sizes& sizes, std::size_t place);

// The elements from the first of an operand with is_exact to its last, what lies between them
// included; 0 if it has none, and the largest number beyond 64 bits.
std::int64_t span_length(const OperandShape& shape, const Sizes& sizes);

// The elements of all operands together.
double num_elements(const Variant& variant, const Sizes& sizes);

// Whether every output is empty, so that there is nothing to compute.
bool writes_nothing(const Variant& variant, const Sizes& sizes);

// Workspace size, in bytes, that is sufficient for every config of the variant on devices of a
// kind; 0 if it needs none.
std::int64_t workspace_bytes(const Variant& variant, DeviceKind kind, const Sizes& sizes);

// "64 rows x 4096 cols"; derived dimensions are left out.
std::string to_text(const Operation& operation, const Sizes& sizes);

}  // namespace dorajit::kernels
