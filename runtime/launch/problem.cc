#include "runtime/launch/problem.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <format>
#include <system_error>

#include "kernel_templates/spaces.h"
#include "runtime/launch/size_limit.h"

namespace dorajit::launch {
namespace {

constexpr std::int64_t kWidestAccess = 16;  // bytes

int bucket_of(std::int64_t num_rows) {
  return static_cast<int>(
      std::bit_width(static_cast<std::uint64_t>(std::max<std::int64_t>(num_rows, 1) - 1)));
}

// What is accessed element by element, or not at all, limits no vector.
bool limits_vectors(const kernels::Variant& variant, std::size_t operand) {
  if (!variant.has(operand)) return false;
  switch (variant.operation->operands[operand].shape) {
    case kernels::OperandShape::kMatrix:
      return true;
    case kernels::OperandShape::kBroadcast:
      return variant.broadcast == kernels::Broadcast::kPerColumn;
    case kernels::OperandShape::kSum:
      return false;
  }
  return true;
}

bool allows(const TensorView& tensor, int width) {
  const std::int64_t size = kernels::size_in_bytes(tensor.type);
  const std::int64_t access = std::min(kWidestAccess, width * size);
  const auto address = static_cast<std::int64_t>(std::bit_cast<std::uintptr_t>(tensor.data));
  return address % access == 0 && (tensor.rows <= 1 || tensor.row_stride * size % access == 0);
}

// Reads the number behind the last `mark` of a text that ends with it; returns what stands before.
template <class Number>
std::optional<std::string_view> take_number(std::string_view text, std::string_view mark,
                                            Number& number) {
  const std::size_t at = text.rfind(mark);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view digits = text.substr(at + mark.size());
  const auto [end, error] = std::from_chars(digits.begin(), digits.end(), number);
  if (error != std::errc() || end != digits.end()) return std::nullopt;
  return text.substr(0, at);
}

}  // namespace

std::string to_text(const Problem& problem) {
  return std::format("{}/v{}/c{}/r{}", kernels::to_text(problem.variant), problem.vector_width,
                     problem.num_cols, problem.row_bucket);
}

std::optional<Problem> parse_problem(std::string_view text) {
  Problem problem;
  const auto columns = take_number(text, "/r", problem.row_bucket);
  const auto width = columns ? take_number(*columns, "/c", problem.num_cols) : columns;
  const auto variant = width ? take_number(*width, "/v", problem.vector_width) : width;
  const auto parsed = variant ? kernels::parse_variant(*variant) : std::nullopt;
  if (!parsed) return std::nullopt;
  problem.variant = *parsed;
  const bool is_possible = problem.num_cols >= 1 && problem.row_bucket >= 0 &&
                           check_size(problem) && problem.vector_width >= 1;
  return is_possible && to_text(problem) == text ? std::optional(problem) : std::nullopt;
}

Problem make_problem(const kernels::Variant& variant, std::span<const TensorView> operands) {
  const TensorView& matrix = operands.front();
  int width = kernels::widest_vector(variant, matrix.device.kind);
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (!limits_vectors(variant, i)) continue;
    while (width > 1 && !allows(operands[i], width)) width /= 2;
  }
  return {.variant = variant,
          .vector_width = width,
          .num_cols = std::max<std::int64_t>(matrix.cols, 1),
          .row_bucket = bucket_of(matrix.rows)};
}

Problem make_problem(const kernels::Variant& variant, kernels::DeviceKind kind,
                     std::int64_t num_rows, std::int64_t num_cols) {
  std::array<TensorView, kernels::kMaxOperands> operands{};
  const auto& specs = variant.operation->operands;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const bool matrix = specs[i].shape == kernels::OperandShape::kMatrix;
    if (!variant.has(i)) {
      operands[i].type = kernels::ElementType::kAbsent;
      continue;
    }
    operands[i] = {.data = nullptr,
                   .type = variant.types[i],
                   .device = {.kind = kind, .ordinal = 0},
                   .rows = matrix ? num_rows : 1,
                   .cols = num_cols,
                   .row_stride = num_cols};
  }
  return make_problem(variant, std::span(operands).first(specs.size()));
}

}  // namespace dorajit::launch
