#include "own_kernels/expression.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

namespace dorajit::own_kernels {
namespace {

using Value = std::expected<std::int64_t, Fault>;

constexpr std::string_view kWords[] = {"and", "or", "not", "min", "max", "ceil_div", "bucket"};
// What an operator with two operands needs at most, for each level of nesting.
constexpr std::size_t kStackPerLevel = 8;

Value overflow() { return std::unexpected(Fault::kOverflow); }

Value divide(std::int64_t left, std::int64_t right) {
  if (right == 0) return std::unexpected(Fault::kDivisionByZero);
  if (left == std::numeric_limits<std::int64_t>::min() && right == -1) return overflow();
  return left / right;
}

Value modulo(std::int64_t left, std::int64_t right) {
  const Value quotient = divide(left, right);
  return quotient ? Value(left - *quotient * right) : quotient;
}

Value ceil_div(std::int64_t left, std::int64_t right) {
  const Value quotient = divide(left, right);
  if (!quotient) return quotient;
  const bool is_cut = *quotient * right != left && (left < 0) == (right < 0);
  return *quotient + (is_cut ? 1 : 0);
}

Value bucket(std::int64_t value) {
  if (value <= 1) return 1;
  if (value > std::int64_t{1} << 62) return overflow();
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(value)));
}

}  // namespace

std::string_view name(Fault fault) {
  return fault == Fault::kOverflow ? "it overflows 64 bits" : "it divides by zero";
}

bool is_name(std::string_view text) {
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  return !text.empty() && is_letter(text.front()) && std::ranges::all_of(text, [&](char c) {
    return is_letter(c) || (c >= '0' && c <= '9');
  }) && !std::ranges::contains(kWords, text);
}

Value Expression::apply(Code code, std::int64_t left, std::int64_t right) {
  std::int64_t result = 0;
  switch (code) {
    case Code::kAdd:
      return __builtin_add_overflow(left, right, &result) ? overflow() : Value(result);
    case Code::kSubtract:
      return __builtin_sub_overflow(left, right, &result) ? overflow() : Value(result);
    case Code::kMultiply:
      return __builtin_mul_overflow(left, right, &result) ? overflow() : Value(result);
    case Code::kDivide:
      return divide(left, right);
    case Code::kModulo:
      return modulo(left, right);
    case Code::kEqual:
      return left == right ? 1 : 0;
    case Code::kNotEqual:
      return left != right ? 1 : 0;
    case Code::kLess:
      return left < right ? 1 : 0;
    case Code::kLessOrEqual:
      return left <= right ? 1 : 0;
    case Code::kGreater:
      return left > right ? 1 : 0;
    case Code::kGreaterOrEqual:
      return left >= right ? 1 : 0;
    case Code::kMin:
      return std::min(left, right);
    case Code::kMax:
      return std::max(left, right);
    default:
      return ceil_div(left, right);
  }
}

Value Expression::run(std::span<const std::int64_t> values) const {
  // parse() bounds the nesting and so the stack.
  std::array<std::int64_t, kDeepest * kStackPerLevel> stack;
  std::size_t depth = 0;
  for (std::size_t at = 0; at < steps_.size(); ++at) {
    const Step& step = steps_[at];
    switch (step.code) {
      case Code::kNumber:
        stack[depth++] = step.operand;
        break;
      case Code::kValue:
        stack[depth++] = values[static_cast<std::size_t>(step.operand)];
        break;
      case Code::kNegate: {
        std::int64_t& top = stack[depth - 1];
        if (__builtin_sub_overflow(std::int64_t{0}, top, &top)) return overflow();
        break;
      }
      case Code::kNot:
        stack[depth - 1] = stack[depth - 1] == 0 ? 1 : 0;
        break;
      case Code::kTruth:
        stack[depth - 1] = stack[depth - 1] != 0 ? 1 : 0;
        break;
      case Code::kAnd:
      case Code::kOr:
        if ((stack[depth - 1] != 0) == (step.code == Code::kOr)) {
          stack[depth - 1] = step.code == Code::kOr ? 1 : 0;
          at = static_cast<std::size_t>(step.operand) - 1;
        } else {
          --depth;
        }
        break;
      case Code::kBucket: {
        const Value result = bucket(stack[depth - 1]);
        if (!result) return result;
        stack[depth - 1] = *result;
        break;
      }
      default: {
        const Value result = apply(step.code, stack[depth - 2], stack[depth - 1]);
        if (!result) return result;
        --depth;
        stack[depth - 1] = *result;
      }
    }
  }
  return stack[0];
}

bool Expression::reads(std::size_t name) const {
  return std::ranges::any_of(steps_, [&](const Step& step) {
    return step.code == Code::kValue && step.operand == static_cast<std::int64_t>(name);
  });
}

}  // namespace dorajit::own_kernels
