#include "bindings/cli/traffic.h"

#include <cstddef>

namespace dorajit::cli {

std::int64_t traffic(const kernels::Variant& variant, std::int64_t rows, std::int64_t cols) {
  std::int64_t bytes = 0;
  const auto& operands = variant.operation->operands;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const bool matrix = operands[i].shape == kernels::OperandShape::kMatrix;
    bytes += (matrix ? rows : 1) * cols * kernels::size_in_bytes(variant.types[i]);
  }
  return bytes;
}

}  // namespace dorajit::cli
