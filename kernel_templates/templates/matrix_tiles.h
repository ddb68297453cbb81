// What the templates of matrix products have in common: boxes of a matrix operand, and the limit on
// shared memory.
#pragma once

#include <cstddef>
#include <string>

#include "kernel_templates/launch_shape.h"
#include "kernel_templates/registry.h"
#include "kernel_templates/spaces.h"

namespace dorajit::kernels {

// Boxes of `box_rows` rows and 128 bytes, with the 128-byte swizzle. Null for a matrix without
// elements, and for a matrix that is not aligned to 16 bytes, whose kernel does not read the map.
TensorBox box_of(const OperandArgument& argument, ElementType type, long long rows,
                 long long columns, int box_rows);

// Why a program cannot have that many bytes on the device; empty if it can.
std::string why_beyond_shared_memory(long long wanted, const SpaceTraits& traits);

}  // namespace dorajit::kernels
