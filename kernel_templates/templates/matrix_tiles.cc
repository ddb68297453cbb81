#include "kernel_templates/templates/matrix_tiles.h"

#include <bit>
#include <cstdint>
#include <format>

#include "kernel_templates/partial_sums.h"

namespace dorajit::kernels {

TensorBox box_of(const OperandArgument& argument, ElementType type, long long rows,
                 long long columns, int box_rows) {
  constexpr long long kAlignment = 16;
  constexpr int kBoxBytes = 128;  // along a row
  const long long size = size_in_bytes(type);
  // A single row may have any stride, but a tensor map needs a valid one.
  const long long stride =
      rows > 1 ? argument.row_stride * size : divide_up(columns * size, kAlignment) * kAlignment;
  if (rows == 0 || columns == 0 || stride % kAlignment != 0 ||
      std::bit_cast<std::uintptr_t>(argument.data) % kAlignment != 0) {
    return {};
  }
  return {.data = argument.data,
          .type = type,
          .rank = 2,
          .sizes = {columns, rows},
          .strides = {stride},
          .box = {kBoxBytes / static_cast<int>(size), box_rows},
          .swizzle_bytes = kBoxBytes};
}

std::string why_beyond_shared_memory(long long wanted, const SpaceTraits& traits) {
  const long long max_bytes = max_shared_bytes(traits.architecture);
  if (wanted <= max_bytes) return {};
  return std::format("its tiles take {} bytes of shared memory, of which there are {}", wanted,
                     max_bytes);
}

}  // namespace dorajit::kernels
