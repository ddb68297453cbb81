// Integer expressions over named values, as descriptions of own kernels have them for grids,
// blocks, shared memory and constraints.
//
//   or, and, not, == != < <= > >=, + -, * / %, unary -, min(a, b, ...), max(a, b, ...),
//   ceil_div(a, b), bucket(a)
//
// Numbers have 64 bits. / and % round towards zero. A comparison is 1 or 0, and anything but 0 is
// true; `and` and `or` evaluate their right side only where it counts, and are 1 or 0. bucket(a) is
// the next power of two, at least 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.h"

namespace dorajit::own_kernels {

// Why an expression has no value.
enum class Fault { kOverflow, kDivisionByZero };

std::string_view name(Fault fault);  // "it overflows 64 bits", "it divides by zero"

// Immutable; evaluated by any number of threads without allocation.
class Expression {
 public:
  static constexpr std::size_t kMaxCharacters = 1000;
  static constexpr std::size_t kDeepest = 32;  // nested parentheses, calls and signs
  static constexpr std::size_t kMaxSteps = 256;

  // kInvalidArgument for text that is no expression, for a name that `names` does not have, for a
  // division by the number 0 and beyond the limits above. The message has the text and the place.
  static Result<Expression> parse(std::string_view text, std::span<const std::string> names);

  // `values` are those of the names that parse() was given, in their order.
  [[nodiscard]] std::expected<std::int64_t, Fault> evaluate(
      std::span<const std::int64_t> values) const {
    // Most of the expressions of a launch are one number or one name.
    if (steps_.size() != 1) return run(values);
    const auto [code, operand] = steps_.front();
    return code == Code::kNumber ? operand : values[static_cast<std::size_t>(operand)];
  }

  // Whether the value of that name matters.
  [[nodiscard]] bool reads(std::size_t name) const;

  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  friend class ExpressionParser;

  // Operators take their operands off a stack and put their result there.
  enum class Code {
    kNumber,  // puts `operand`
    kValue,   // puts the value of name `operand`
    kAdd,
    kSubtract,
    kMultiply,
    kDivide,
    kModulo,
    kNegate,
    kNot,
    kEqual,
    kNotEqual,
    kLess,
    kLessOrEqual,
    kGreater,
    kGreaterOrEqual,
    kMin,
    kMax,
    kCeilDiv,
    kBucket,
    // Where the top decides, makes it 1 or 0 and goes on at step `operand`; else takes it off.
    kAnd,
    kOr,
    kTruth,  // makes the top 1 or 0
  };
  struct Step {
    Code code;
    std::int64_t operand;
  };

  [[nodiscard]] std::expected<std::int64_t, Fault> run(std::span<const std::int64_t> values) const;
  static std::expected<std::int64_t, Fault> apply(Code code, std::int64_t left, std::int64_t right);

  std::string text_;
  std::vector<Step> steps_;
};

// Whether the text is a name: a letter or `_`, then letters, digits and `_`, and no word of
// expressions.
bool is_name(std::string_view text);

}  // namespace dorajit::own_kernels
