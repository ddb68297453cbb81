// Upper limits of the integer values that tuning generates: kernels may index with them.
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

std::unexpected<Error> refuse(std::string_view argument, std::string_view what) {
  return fail(
      StatusCode::kInvalidArgument,
      std::format("kernel description: \"limits\" has `{}`, {}", argument.substr(0, 100), what));
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
    const auto found = std::ranges::find(own.all_operands, argument, &kernels::Operand::name);
    if (found == own.all_operands.end()) return refuse(argument, "which is no tensor");
    if (found->role != kernels::OperandRole::kInput && !found->is_read) {
      return refuse(argument, "which is only written; only values that are read have a limit");
    }
    const auto operand = static_cast<std::size_t>(found - own.all_operands.begin());
    if (!has_integers(own.served_types[operand].types)) {
      return refuse(argument, "whose elements are not integers; only integers have a limit");
    }
    auto limit = Expression::parse(text, own.names);
    if (!limit) return refuse(argument, "whose limit is refused: " + limit.error().message);
    if (is_constant(*limit, own.names.size())) {
      const auto value = limit->evaluate(kernels::Sizes{});
      if (!value || *value < 1) {
        return refuse(argument, std::format("whose limit \"{}\" {}; values are from 0 to below it, "
                                            "so it is at least 1",
                                            text,
                                            value ? std::format("is {}", *value)
                                                  : std::string(name(value.error()))));
      }
    }
    own.value_limits[operand] = *std::move(limit);
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
