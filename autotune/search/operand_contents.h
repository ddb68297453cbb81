// What tuning fills the memory of operands with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernel_templates/registry.h"
#include "runtime/base/error.h"

namespace dorajit::autotune {

// Element i of those in `bytes`.
double element_of(std::span<const std::byte> bytes, kernels::ElementType type, std::size_t i);

// The values that tuning fills operands with: the first elements of an operand with `count` of
// them, which repeat after that: reproducible finite values as the operation table describes them,
// integers from 0 to below the template's value_limit(). kInvalidArgument if that allows no value
// for those sizes.
Result<std::vector<std::byte>> random_elements(const kernels::Variant& variant, std::size_t operand,
                                               const kernels::Sizes& sizes, std::size_t count,
                                               std::uint64_t seed);

// What to fill an operand with strides with, again and again: elements that are taken from
// `elements` again and again, and between them the bytes of `gaps` at these places, again and
// again, too. Whole if the operand is small, and else its first rows.
std::vector<std::byte> spread_elements(const kernels::OperandShape& shape,
                                       const kernels::Sizes& sizes, std::size_t element_size,
                                       std::span<const std::byte> elements,
                                       std::span<const std::byte> gaps);

}  // namespace dorajit::autotune
