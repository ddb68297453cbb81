// Bytes that an operation has to move.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernel_templates/integer_types.h"
#include "kernel_templates/registry.h"
#include "kernel_templates/sizes.h"

namespace dorajit::cli {

// Every element of every operand crosses the memory bus once.
inline std::int64_t traffic(const kernels::Variant& variant, const kernels::Sizes& sizes) {
  std::int64_t bytes = 0;
  const auto& operands = variant.operation->operands;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (!variant.has(i)) continue;
    bytes += kernels::num_rows(operands[i].shape, sizes) *
             kernels::row_length(operands[i].shape, sizes) *
             kernels::element_size(variant.types[i]);
  }
  return bytes;
}

}  // namespace dorajit::cli
