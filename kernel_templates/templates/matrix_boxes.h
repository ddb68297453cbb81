// Boxes of a matrix operand.
#pragma once

#include <cstddef>

#include "kernel_templates/registry.h"
#include "kernel_templates/tensor_box.h"

namespace dorajit::kernels {

// Boxes of `box_rows` rows and 128 bytes. Null for a matrix without elements, and for a matrix that
// is not aligned to 16 bytes, whose kernel does not read the map.
TensorBox box_of(const KernelArguments& arguments, const Variant& variant, std::size_t operand,
                 long long rows, long long columns, int box_rows);

}  // namespace dorajit::kernels
