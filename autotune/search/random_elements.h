// The values that tuning fills operands with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernel_templates/registry.h"
#include "runtime/base/error.h"

namespace dorajit::autotune {

// The first elements of an operand with `count` of them, which repeat after that: reproducible
// finite values as the operation table describes them, integers from 0 to below the template's
// value_limit(). kInvalidArgument if that allows no value for those sizes.
Result<std::vector<std::byte>> random_elements(const kernels::Variant& variant, std::size_t operand,
                                               const kernels::Sizes& sizes, std::size_t count,
                                               std::uint64_t seed);

}  // namespace dorajit::autotune
