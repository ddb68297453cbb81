// Floating-point elements of operands in host memory, and how far those that were rounded may
// differ.
#pragma once

#include <cstddef>
#include <span>

#include "kernel_templates/element_type.h"

namespace dorajit::autotune {

double element_of(std::span<const std::byte> bytes, kernels::ElementType type, std::size_t i);
void set_element(std::span<std::byte> bytes, kernels::ElementType type, std::size_t i,
                 double value);

// How much two nearly equal numbers may differ after rounding to a type, relative to their size:
// one rounding step. 0 for types of more than 16 bits.
double step_of(kernels::ElementType type);
// The smallest normal number: the steps of smaller ones are as wide as its own. 0 for types whose
// smaller numbers do not matter.
double smallest_normal(kernels::ElementType type);

}  // namespace dorajit::autotune
