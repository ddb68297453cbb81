// What follows from the sizes of a call or a problem.
#pragma once

#include <cstdint>
#include <string>

#include "kernel_templates/registry.h"

namespace dorajit::kernels {

// The sizes with those of derived dimensions filled in. Channels per row: the largest power of two,
// up to 256, that divides the rows.
Sizes with_derived(const Variant& variant, Sizes sizes);

// The elements of an operand, and how many rows they lie in: one for a vector.
inline std::int64_t num_rows(const OperandShape& shape, const Sizes& sizes) {
  return shape.is_matrix() ? sizes[static_cast<std::size_t>(shape.outer)] : 1;
}
inline std::int64_t row_length(const OperandShape& shape, const Sizes& sizes) {
  return sizes[static_cast<std::size_t>(shape.inner)];
}

// Of all operands together.
double num_elements(const Variant& variant, const Sizes& sizes);

// Whether no output has an element, so that there is nothing to compute.
bool writes_nothing(const Variant& variant, const Sizes& sizes);

// Bytes of workspace that serve every config of the variant; 0 if it needs none.
std::int64_t workspace_bytes(const Variant& variant, const Sizes& sizes);

// "64 rows x 4096 cols"; derived dimensions are left out.
std::string to_text(const Operation& operation, const Sizes& sizes);

}  // namespace dorajit::kernels
