#include "kernel_templates/sizes.h"

#include <algorithm>
#include <format>

#include "kernel_templates/template.h"

namespace dorajit::kernels {
namespace {

constexpr std::int64_t kMaxChannels = 256;

}  // namespace

Sizes with_derived(const Variant& variant, Sizes sizes, int vector_width) {
  const auto& dimensions = variant.operation->dimensions;
  bool is_complete = true;
  for (std::size_t i = 0; i < dimensions.size(); ++i) {
    is_complete = is_complete && dimensions[i].keying <= Keying::kConstant;
    if (dimensions[i].keying == Keying::kConstant) sizes[i] = dimensions[i].most;
    if (dimensions[i].keying != Keying::kDerived) continue;
    if (variant.broadcast == Broadcast::kPerColumn) {
      sizes[i] = sizes[static_cast<std::size_t>(dimensions[i].columns)];
    } else {
      const std::int64_t rows = sizes[static_cast<std::size_t>(dimensions[i].rows)];
      sizes[i] = std::min(rows & -rows, kMaxChannels);
    }
  }
  if (!is_complete) template_of(variant).derive_sizes(variant, vector_width, sizes);
  return sizes;
}

std::int64_t stride_at(const OperandShape& shape, const Sizes& sizes, std::size_t place) {
  if (!shape.strides.empty() && shape.strides[place] >= 0) {
    return sizes[static_cast<std::size_t>(shape.strides[place])];
  }
  std::int64_t stride = 1;
  for (std::size_t i = place + 1; i < rank_of(shape); ++i) {
    if (__builtin_mul_overflow(stride, sizes[dimension_at(shape, i)], &stride)) {
      return std::numeric_limits<std::int64_t>::max();
    }
  }
  return stride;
}

std::int64_t span_length(const OperandShape& shape, const Sizes& sizes) {
  std::int64_t span = 1;
  bool is_too_large = false;
  for (std::size_t i = 0; i < rank_of(shape); ++i) {
    const std::int64_t size = sizes[dimension_at(shape, i)];
    if (size == 0) return 0;
    std::int64_t length = 0;
    is_too_large |= __builtin_mul_overflow(size - 1, stride_at(shape, sizes, i), &length) ||
                    __builtin_add_overflow(span, length, &span);
  }
  return is_too_large ? std::numeric_limits<std::int64_t>::max() : span;
}

double num_elements(const Variant& variant, const Sizes& sizes) {
  const auto& operands = variant.operation->operands;
  double count = 0;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (!variant.has(i)) continue;
    count += static_cast<double>(num_rows(operands[i].shape, sizes)) *
             static_cast<double>(row_length(operands[i].shape, sizes));
  }
  return count;
}

bool writes_nothing(const Variant& variant, const Sizes& sizes) {
  const auto& operands = variant.operation->operands;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].role != OperandRole::kOutput || !variant.has(i)) continue;
    const OperandShape& shape = operands[i].shape;
    if (num_rows(shape, sizes) > 0 && row_length(shape, sizes) > 0) return false;
  }
  return true;
}

std::int64_t workspace_bytes(const Variant& variant, DeviceKind kind, const Sizes& sizes) {
  return template_of(variant).workspace_bytes(variant, kind, sizes);
}

std::string to_text(const Operation& operation, const Sizes& sizes) {
  std::string text;
  for (std::size_t i = 0; i < operation.dimensions.size(); ++i) {
    if (operation.dimensions[i].keying >= Keying::kDerived) continue;
    if (!text.empty()) text += " x ";
    text += std::format("{} {}", sizes[i], operation.dimensions[i].name);
  }
  return text;
}

}  // namespace dorajit::kernels
