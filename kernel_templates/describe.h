// Builds the object of an operation from its description and its formula, and checks it at compile
// time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string_view>

#include "kernel_templates/builtin_kernels.h"
#include "kernel_templates/reference.h"
#include "kernel_templates/registry.h"
#include "kernel_templates/sizes.h"
#include "kernel_templates/templates/streaming_configs.h"

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

// The dimensions of every operation with a formula, in the order of KernelArguments. There is a
// channel for each column, or for each row of a sample, depending on the variant's Broadcast.
inline constexpr Dimension kDerivedChannels = {
    .name = "channels", .keying = Keying::kDerived, .columns = kCols, .rows = kRows};
inline constexpr Dimension kElementwiseDimensions[] = {
    {.name = "rows", .keying = Keying::kBucketed, .mark = 'r'},
    {.name = "cols", .keying = Keying::kExact, .mark = 'c'},
    kDerivedChannels};
inline constexpr OperandShape kMatrix = {.text = "rows, cols", .outer = kRows, .inner = kCols};
inline constexpr OperandShape kPerChannel = {.text = "channels", .inner = kChannels};

// The properties of an operation that do not follow from its formula.
struct Description {
  std::string_view name;
  std::string_view documentation;
  std::span<const Operand> operands;  // matrix inputs, inputs per channel, matrix outputs, a sum
  std::span<const std::string_view> scalars{};
  std::string_view formula;      // name of the class template
  std::string_view math_header;  // header that declares it
};

// The index of the first per-channel operand with the role, or -1.
consteval int find_per_channel(std::span<const Operand> operands, OperandRole role) {
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].shape == kPerChannel && operands[i].role == role) return static_cast<int>(i);
  }
  return -1;
}

// Fails to compile if the operands differ from those of the formula or from its order.
template <template <class> class Formula>
consteval void check_operands(std::span<const Operand> operands) {
  using enum OperandRole;
  using F = Formula<float>;
  constexpr int kFirstOutput = F::kMatrixInputs + F::kBroadcastInputs;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const int at = static_cast<int>(i);
    const bool is_broadcast = at >= F::kMatrixInputs && at < kFirstOutput;
    const bool is_sum = at >= kFirstOutput + F::kOutputs - F::kSums;
    if ((operands[i].role == kOutput) != (at >= kFirstOutput)) refuse("inputs come before outputs");
    const bool is_per_channel = operands[i].shape == kPerChannel;
    if (is_per_channel == (operands[i].shape == kMatrix)) refuse("an operand has a known shape");
    if (at < kFirstOutput && is_per_channel != is_broadcast) refuse("matrix inputs come first");
    if (at >= kFirstOutput && is_per_channel != is_sum) refuse("a sum comes last");
  }
  if (static_cast<int>(operands.size()) != kFirstOutput + F::kOutputs) {
    refuse("each operand of the formula is described");
  }
}

// An operation of the public interfaces.
template <template <class> class Formula>
consteval Operation describe(const Description& text) {
  check_operands<Formula>(text.operands);
  return checked({.name = text.name,
                  .documentation = text.documentation,
                  .dimensions = kElementwiseDimensions,
                  .operands = text.operands,
                  .scalars = text.scalars,
                  .formula = text.formula,
                  .math_header = text.math_header,
                  .reference = evaluate_reference<Formula>,
                  .select_template = formula_template,
                  .builtin = builtin_kernel_of<Formula>,
                  .sum_operand = find_per_channel(text.operands, OperandRole::kOutput),
                  .has_row_form = find_per_channel(text.operands, OperandRole::kInput) >= 0 &&
                                  Formula<float>::kSums <= 1,
                  .is_one_row = std::ranges::all_of(text.operands, [](const Operand& operand) {
                    return operand.shape == kMatrix;
                  })});
}

// A pass over memory that only measurements launch. It has no built-in kernel.
template <template <class> class Formula>
consteval Operation describe_pass(const Description& text) {
  Operation pass = describe<Formula>(text);
  pass.builtin = nullptr;
  pass.is_offered = false;
  return pass;
}

}  // namespace dorajit::kernels
