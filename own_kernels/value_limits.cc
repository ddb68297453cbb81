// The values that tuning generates: upper limits of integers, with which kernels may index, and
// ranges of floating-point numbers.
#include <algorithm>
#include <array>
#include <format>
#include <string_view>
#include <utility>

#include "kernel_templates/integer_types.h"
#include "own_kernels/own_operation.h"

namespace dorajit::own_kernels {
namespace {

// Of inputs without a limit: every integer type but bool has all values below it.
constexpr std::int64_t kUsualLimit = 128;

std::unexpected<Error> refuse(std::string_view field, std::string_view argument,
                              std::string_view what) {
  return refuse_field(field, std::format("has `{}`, {}", argument.substr(0, 100), what));
}

// The index of an argument that is a tensor and read.
Result<std::size_t> find_input(const OwnOperation& own, std::string_view field,
                               std::string_view argument) {
  const auto found = std::ranges::find(own.all_operands, argument, &kernels::Operand::name);
  if (found == own.all_operands.end()) return refuse(field, argument, "which is no tensor");
  if (found->role != kernels::OperandRole::kInput && !found->is_read) {
    return refuse(field, argument, "which is only written; what is read gets such values");
  }
  return static_cast<std::size_t>(found - own.all_operands.begin());
}

// Whether a tensor has integers, of whatever type that is served.
bool has_integers(unsigned served_types) {
  for (const kernels::IntegerType& integer : kernels::kIntegerTypes) {
    if (integer.type != kernels::kBool)
      served_types &= ~(1U << static_cast<unsigned>(integer.type));
  }
  return served_types == 0;
}

bool is_constant(const Expression& expression, std::size_t names) {
  for (std::size_t i = 0; i < names; ++i) {
    if (expression.reads(i)) return false;
  }
  return true;
}

}  // namespace

Status read_value_limits(OwnOperation& own) {
  own.value_limits.resize(own.all_operands.size());
  for (const auto& [argument, text] : own.given.limits) {
    DORAJIT_ASSIGN(const std::size_t operand, find_input(own, "limits", argument));
    if (!has_integers(own.served_types[operand].types)) {
      return refuse("limits", argument,
                    "whose elements are not integers; only integers have a limit");
    }
    auto limit = Expression::parse(text, own.names);
    if (!limit)
      return refuse("limits", argument, "whose limit is refused: " + limit.error().message);
    if (is_constant(*limit, own.names.size())) {
      const auto value = limit->evaluate(kernels::Sizes{});
      if (!value || *value < 1) {
        return refuse(
            "limits", argument,
            std::format("whose limit \"{}\" {}; values are from 0 to below it, "
                        "so it is at least 1",
                        text,
                        value ? std::format("is {}", *value) : std::string(name(value.error()))));
      }
    }
    own.value_limits[operand] = *std::move(limit);
  }
  for (const auto& [argument, range] : own.given.ranges) {
    DORAJIT_ASSIGN(const std::size_t operand, find_input(own, "ranges", argument));
    const unsigned types = own.served_types[operand].types;
    for (const kernels::IntegerType& integer : kernels::kIntegerTypes) {
      if ((types & 1U << static_cast<unsigned>(integer.type)) == 0) continue;
      return refuse("ranges", argument, "whose elements may be integers; they have \"limits\"");
    }
    for (int type = 0; type < 32; ++type) {
      const double most = largest_of(kernels::ElementType{type});
      if ((types >> type & 1U) == 0 || (-most <= range.least && range.most <= most)) continue;
      return refuse(
          "ranges", argument,
          std::format("whose range is beyond {:.6g}, the largest number of its type", most));
    }
    own.all_operands[operand].range = range;
  }
  return {};
}

std::int64_t value_limit(const kernels::Variant& variant, std::size_t operand,
                         const kernels::Sizes& sizes) {
  const kernels::IntegerType* const integer = kernels::as_integer(variant.types[operand]);
  const auto& given = OwnOperation::of(variant).value_limits[operand];
  const std::int64_t limit = given ? given->evaluate(sizes).value_or(0) : kUsualLimit;
  if (integer == nullptr || limit < 1) return limit;
  return std::min(limit - 1, integer->most) + 1;
}

}  // namespace dorajit::own_kernels
