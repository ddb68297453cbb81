#include "runtime/launch/size_limit.h"

#include <algorithm>
#include <cstddef>
#include <format>

#include "kernel_templates/integer_types.h"
#include "kernel_templates/sizes.h"

namespace dorajit::launch {
namespace {

// The product of non-negative factors; nothing beyond the bound.
std::optional<std::int64_t> bytes_of(std::int64_t rows, std::int64_t row_stride,
                                     std::int64_t element_size) {
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(rows, row_stride, &bytes) ||
      __builtin_mul_overflow(bytes, element_size, &bytes) || bytes > kMaxOperandBytes) {
    return std::nullopt;
  }
  return bytes;
}

}  // namespace

std::optional<std::int64_t> span_bytes(const TensorView& tensor) {
  if (tensor.rows == 0 || tensor.cols == 0) return 0;
  const std::int64_t stride =
      tensor.rows > 1 ? std::max(tensor.row_stride, tensor.cols) : tensor.cols;
  return bytes_of(tensor.rows, stride, kernels::element_size(tensor.type));
}

Status check_size(const kernels::Variant& variant, const kernels::Sizes& sizes) {
  const kernels::Operation& op = *variant.operation;
  for (std::size_t i = 0; i < op.dimensions.size(); ++i) {
    const kernels::Dimension& dimension = op.dimensions[i];
    if (dimension.most == 0 || sizes[i] <= dimension.most) continue;
    return fail(StatusCode::kUnsupported,
                std::format("{}: {} `{}`, but at most {} are served", op.name, sizes[i],
                            dimension.name, dimension.most));
  }
  const kernels::Sizes complete = kernels::with_derived(variant, sizes);
  for (std::size_t i = 0; i < op.operands.size(); ++i) {
    const kernels::OperandShape& shape = op.operands[i].shape;
    if (!variant.has(i) ||
        bytes_of(kernels::num_rows(shape, complete), kernels::row_length(shape, complete),
                 kernels::element_size(variant.types[i]))) {
      continue;
    }
    return fail(StatusCode::kInvalidArgument,
                std::format("{}: {} of {} take more than 2^47 bytes, which is all that a process "
                            "can address; give fewer",
                            op.name, kernels::to_text(op, sizes), kernels::name(variant.types[i])));
  }
  return {};
}

Status check_size(const Problem& problem) {
  kernels::Sizes smallest = problem.key;
  const auto& dimensions = problem.variant.operation->dimensions;
  for (std::size_t i = 0; i < dimensions.size(); ++i) {
    if (dimensions[i].keying != kernels::Keying::kBucketed) continue;
    // Sizes above 2^61 fit in no address space.
    const auto bucket = std::min<std::int64_t>(problem.key[i], 62);
    smallest[i] = bucket == 0 ? 1 : (std::int64_t{1} << (bucket - 1)) + 1;
  }
  return check_size(problem.variant, smallest);
}

}  // namespace dorajit::launch
