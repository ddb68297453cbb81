#include "kernel_templates/sizes.h"

#include <algorithm>
#include <format>

#include "kernel_templates/template.h"

namespace dorajit::kernels {
namespace {

constexpr std::int64_t kMaxChannels = 256;

}  // namespace

Sizes with_derived(const Variant& variant, Sizes sizes) {
  const auto& dimensions = variant.operation->dimensions;
  for (std::size_t i = 0; i < dimensions.size(); ++i) {
    if (dimensions[i].keying == Keying::kConstant) sizes[i] = dimensions[i].most;
    if (dimensions[i].keying != Keying::kDerived) continue;
    if (variant.broadcast == Broadcast::kPerColumn) {
      sizes[i] = sizes[static_cast<std::size_t>(dimensions[i].columns)];
    } else {
      const std::int64_t rows = sizes[static_cast<std::size_t>(dimensions[i].rows)];
      sizes[i] = std::min(rows & -rows, kMaxChannels);
    }
  }
  return sizes;
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

std::int64_t workspace_bytes(const Variant& variant, const Sizes& sizes) {
  return template_of(variant).workspace_bytes(variant, sizes);
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
