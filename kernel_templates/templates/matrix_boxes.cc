#include "kernel_templates/templates/matrix_boxes.h"

#include <bit>
#include <cstdint>

#include "kernel_templates/partial_sums.h"

namespace dorajit::kernels {

TensorBox box_of(const KernelArguments& arguments, const Variant& variant, std::size_t operand,
                 long long rows, long long columns, int box_rows) {
  constexpr long long kAlignment = 16;
  const OperandArgument& argument = arguments.operands[operand];
  const long long size = size_in_bytes(variant.types[operand]);
  // A single row may have any stride, but a tensor map needs a valid one.
  const long long stride =
      rows > 1 ? argument.row_stride * size : divide_up(columns * size, kAlignment) * kAlignment;
  if (rows == 0 || columns == 0 || stride % kAlignment != 0 ||
      std::bit_cast<std::uintptr_t>(argument.data) % kAlignment != 0) {
    return {};
  }
  return {.data = argument.data,
          .type = variant.types[operand],
          .rows = rows,
          .columns = columns,
          .row_bytes = stride,
          .box_rows = box_rows};
}

}  // namespace dorajit::kernels
