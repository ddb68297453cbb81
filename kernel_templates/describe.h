// Makes the object of an operation from its description and its formula.
#pragma once

#include <span>
#include <string_view>

#include "kernel_templates/builtin_kernels.h"
#include "kernel_templates/reference.h"
#include "kernel_templates/registry.h"

namespace dorajit::kernels {

// What the formula does not say.
struct Description {
  std::string_view name;
  std::string_view documentation;
  std::span<const Operand> operands;  // matrix inputs, broadcast inputs, matrix outputs, a sum
  std::span<const std::string_view> scalars;
  std::string_view formula;      // the class template's name
  std::string_view math_header;  // which declares it
  bool is_per_layer = false;
};

consteval int count_operands(std::span<const Operand> operands, OperandRole role,
                             OperandShape shape) {
  int count = 0;
  for (const Operand& operand : operands) {
    count += operand.role == role && operand.shape == shape ? 1 : 0;
  }
  return count;
}

consteval int find_shape(std::span<const Operand> operands, OperandShape shape) {
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].shape == shape) return static_cast<int>(i);
  }
  return -1;
}

// Never defined: a call in a constant expression does not compile.
void refuse(const char* why);

// Does not compile if the operands are not those of the formula, in its order.
template <template <class> class Formula>
consteval void check_operands(std::span<const Operand> operands) {
  using enum OperandRole;
  using enum OperandShape;
  using F = Formula<float>;
  constexpr int kFirstOutput = F::kMatrixInputs + F::kBroadcastInputs;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const int at = static_cast<int>(i);
    const bool is_broadcast = at >= F::kMatrixInputs && at < kFirstOutput;
    const bool is_sum = at >= kFirstOutput + F::kOutputs - F::kSums;
    if ((operands[i].role == kOutput) != (at >= kFirstOutput)) refuse("inputs come before outputs");
    if ((operands[i].shape == kBroadcast) != is_broadcast) refuse("matrix inputs come first");
    if ((operands[i].shape == kSum) != is_sum) refuse("a sum comes last");
  }
  if (static_cast<int>(operands.size()) != kFirstOutput + F::kOutputs) {
    refuse("each operand of the formula is described");
  }
}

// An operation that the public interfaces offer.
template <template <class> class Formula>
consteval Operation describe(const Description& text) {
  check_operands<Formula>(text.operands);
  return {.name = text.name,
          .documentation = text.documentation,
          .operands = text.operands,
          .scalars = text.scalars,
          .formula = text.formula,
          .math_header = text.math_header,
          .reference = evaluate_reference<Formula>,
          .builtin = builtin_kernel_of<Formula>,
          .is_offered = true,
          .sum_operand = find_shape(text.operands, OperandShape::kSum),
          .is_per_layer = text.is_per_layer,
          .has_broadcast = find_shape(text.operands, OperandShape::kBroadcast) >= 0};
}

// A pass over memory that only measurements launch, and only through a compiler.
template <template <class> class Formula>
consteval Operation describe_pass(const Description& text) {
  Operation pass = describe<Formula>(text);
  pass.builtin = nullptr;
  pass.is_offered = false;
  return pass;
}

}  // namespace dorajit::kernels
