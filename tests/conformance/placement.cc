#include "tests/conformance/placement.h"

#include <format>
#include <utility>

namespace dorajit::tests {
namespace {

using kernels::OperandRole;

// A matrix output and a matrix input of the same type.
using Pair = std::pair<std::size_t, std::size_t>;

std::vector<Pair> pairs_of(const kernels::Variant& variant) {
  const auto& operands = variant.operation->operands;
  const auto is_matrix = [&](std::size_t i, OperandRole role) {
    return operands[i].role == role && operands[i].shape.is_matrix() && variant.has(i);
  };
  std::vector<Pair> pairs;
  for (std::size_t output = 0; output < operands.size(); ++output) {
    if (!is_matrix(output, OperandRole::kOutput)) continue;
    for (std::size_t input = 0; input < operands.size(); ++input) {
      if (!is_matrix(input, OperandRole::kInput)) continue;
      if (variant.types[input] == variant.types[output]) pairs.emplace_back(output, input);
    }
  }
  return pairs;
}

}  // namespace

std::optional<std::size_t> Placement::output_at(const kernels::Variant& variant,
                                                std::size_t operand) const {
  const auto& operands = variant.operation->operands;
  for (std::size_t output = 0; output < operands.size(); ++output) {
    if (operands[output].role != OperandRole::kOutput || !variant.has(output)) continue;
    if (over[output].value_or(output) == operand) return output;
  }
  return std::nullopt;
}

std::vector<Placement> placements(const kernels::Variant& variant) {
  std::vector<Placement> all(1);
  const std::vector<Pair> pairs = pairs_of(variant);
  for (const auto& [output, input] : pairs) {
    all.emplace_back().over[output] = input;
    for (const auto& [second_output, second_input] : pairs) {
      if (second_output <= output || second_input == input) continue;
      Placement& both = all.emplace_back();
      both.over[output] = input;
      both.over[second_output] = second_input;
    }
  }
  return all;
}

std::string to_text(const kernels::Variant& variant, const Placement& placement) {
  const auto& operands = variant.operation->operands;
  std::string text;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (!placement.over[i]) continue;
    text += std::format("{}{} over {}", text.empty() ? "" : ", ", operands[i].name,
                        operands[*placement.over[i]].name);
  }
  return text.empty() ? "out of place" : text;
}

}  // namespace dorajit::tests
