// Bytes that an operation has to move.
#pragma once

#include <cstdint>

#include "kernel_templates/registry.h"

namespace dorajit::cli {

// Every element of every operand crosses the memory bus once.
std::int64_t traffic(const kernels::Variant& variant, const kernels::Sizes& sizes);

}  // namespace dorajit::cli
