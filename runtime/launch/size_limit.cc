#include "runtime/launch/size_limit.h"

#include <algorithm>
#include <cstddef>
#include <format>

namespace dorajit::launch {
namespace {

// The product of factors that are not negative, unless it is beyond the bound.
std::optional<std::int64_t> bytes_of(std::int64_t rows, std::int64_t row_stride,
                                     std::int64_t element_size) {
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(rows, row_stride, &bytes) ||
      __builtin_mul_overflow(bytes, element_size, &bytes) || bytes > kMostOperandBytes) {
    return std::nullopt;
  }
  return bytes;
}

kernels::ElementType widest_matrix_type(const kernels::Variant& variant) {
  const auto& operands = variant.operation->operands;
  kernels::ElementType widest = variant.types.front();
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].shape == kernels::OperandShape::kMatrix && variant.has(i) &&
        kernels::size_in_bytes(variant.types[i]) > kernels::size_in_bytes(widest)) {
      widest = variant.types[i];
    }
  }
  return widest;
}

}  // namespace

std::optional<std::int64_t> span_bytes(const TensorView& tensor) {
  if (tensor.rows == 0 || tensor.cols == 0) return 0;
  const std::int64_t stride =
      tensor.rows > 1 ? std::max(tensor.row_stride, tensor.cols) : tensor.cols;
  return bytes_of(tensor.rows, stride, kernels::size_in_bytes(tensor.type));
}

Status check_size(const kernels::Variant& variant, std::int64_t num_rows, std::int64_t num_cols) {
  const kernels::ElementType type = widest_matrix_type(variant);
  if (bytes_of(num_rows, num_cols, kernels::size_in_bytes(type))) return {};
  return fail(StatusCode::kInvalidArgument,
              std::format("{}: {} rows x {} columns of {} take more than 2^47 bytes, which is all "
                          "that a process can address; give fewer",
                          variant.operation->name, num_rows, num_cols, kernels::name(type)));
}

Status check_size(const Problem& problem) {
  // The fewest rows of the bucket; above 2^61 of them no row has room.
  const int bucket = std::min(problem.row_bucket, 62);
  const std::int64_t rows = bucket == 0 ? 1 : (std::int64_t{1} << (bucket - 1)) + 1;
  return check_size(problem.variant, rows, problem.num_cols);
}

}  // namespace dorajit::launch
