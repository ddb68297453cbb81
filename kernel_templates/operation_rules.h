// Rules that every operation must meet, checked at compile time.
#pragma once

#include <algorithm>
#include <cstddef>

#include "kernel_templates/registry.h"

namespace dorajit::kernels {

// Why the object cannot be an entry of the table; null if it can.
constexpr const char* why_malformed(const Operation& operation) {
  if (operation.operands.size() > kMaxOperands) return "it has more than kMaxOperands operands";
  if (operation.scalars.size() > kMaxScalars) return "it has more than kMaxScalars scalars";
  if (operation.dimensions.size() > kMaxDimensions) {
    return "it has more than kMaxDimensions dimensions";
  }
  const auto count = static_cast<int>(operation.dimensions.size());
  for (std::size_t i = 0; i < operation.dimensions.size(); ++i) {
    const Dimension& dimension = operation.dimensions[i];
    if (dimension.keying == Keying::kDerived) {
      const bool has_both = dimension.columns >= 0 && dimension.columns < count &&
                            dimension.rows >= 0 && dimension.rows < count;
      if (!has_both) return "a derived dimension names the two that it is counted along";
      continue;
    }
    // 'v' is the mark of the vector width.
    if (!dimension.mark.is_letter() || dimension.mark == 'v') {
      return "the mark of a dimension is a lower-case letter other than v";
    }
    if (std::ranges::count(operation.dimensions, dimension.mark, &Dimension::mark) > 1) {
      return "two dimensions have the same mark";
    }
  }
  bool has_output = false;
  for (const Operand& operand : operation.operands) {
    if (operand.shape.outer >= count || operand.shape.inner < 0 || operand.shape.inner >= count) {
      return "an operand has a dimension that the operation does not have";
    }
    if (operand.role == OperandRole::kInput && has_output) return "inputs come before outputs";
    has_output = has_output || operand.role == OperandRole::kOutput;
  }
  if (!has_output) return "it has no output";
  return operation.formula.empty() == operation.math_header.empty()
             ? nullptr
             : "a formula has a header, and a header a formula";
}

// Declared but not defined: calling it in a constant expression is a compile error.
void refuse(const char* why);

consteval Operation checked(const Operation& operation) {
  if (const char* const why = why_malformed(operation)) refuse(why);
  return operation;
}

}  // namespace dorajit::kernels
