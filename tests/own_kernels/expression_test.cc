// The expressions of own kernels: values, faults, refusals.
#include "own_kernels/expression.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tests/fakes/results.h"

namespace dorajit::own_kernels {
namespace {

using testing::HasSubstr;

const std::vector<std::string> kNames = {"n", "VEC", "BLOCK"};
constexpr std::int64_t kValues[] = {1000, 4, 256};
constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

std::expected<std::int64_t, Fault> value_of(std::string_view text) {
  const auto parsed = Expression::parse(text, kNames);
  EXPECT_TRUE(parsed) << text << ": " << parsed.error().message;
  return parsed ? parsed->evaluate(kValues) : std::unexpected(Fault::kOverflow);
}

std::string refusal_of(std::string_view text) {
  const auto parsed = Expression::parse(text, kNames);
  EXPECT_FALSE(parsed) << text;
  return parsed ? std::string() : parsed.error().message;
}

TEST(ExpressionTest, ValuesFollowPrecedenceNamesAndDivision) {
  for (const auto& [text, value] : std::initializer_list<std::pair<const char*, std::int64_t>>{
           {"1 + 2 * 3", 7},
           {"(1 + 2) * 3", 9},
           {"10 - 3 - 2", 5},
           {"100 / 7 % 4", 2},
           {"-3 + 5", 2},
           {"--3", 3},
           {"2 * -3", -6},
           {"1 + 1 == 2 and 3 < 2 + 2", 1},
           {"not 1 == 2", 1},
           {"0 and 0 or 5", 1},
           {"1 or 0 and 0", 1},
           {"n % VEC == 0", 1},
           {"ceil_div(n, BLOCK * VEC)", 1},
           {"ceil_div(n, BLOCK)", 4},
           {"min(n, VEC, BLOCK) + max(n, BLOCK)", 1004},
           {"bucket(n)", 1024},
           {"bucket(1024)", 1024},
           {"bucket(0)", 1},
           // Division rounds towards zero.
           {"-7 / 2", -3},
           {"-7 % 2", -1},
           {"ceil_div(-7, 2)", -3},
           {"ceil_div(7, 2)", 4},
           {"ceil_div(8, 2)", 4},
           // Comparisons are one or zero.
           {"1 < 2", 1},
           {"2 <= 1", 0},
           {"2 > 1", 1},
           {"1 >= 2", 0},
           {"1 != 1", 0},
           {"5 and 7", 1},
           {"0 or 7", 1},
           {"not 7", 0}}) {
    EXPECT_EQ(value_of(text), value) << text;
  }
}

TEST(ExpressionTest, RightSideIsEvaluatedOnlyWhereItCounts) {
  EXPECT_EQ(value_of("n > 0 or n / (n - n) == 1"), 1);
  EXPECT_EQ(value_of("n < 0 and n / (n - n) == 1"), 0);
  EXPECT_EQ(value_of("n > 0 and n / (n - n) == 1"), std::unexpected(Fault::kDivisionByZero));
}

TEST(ExpressionTest, OverflowHasNoValue) {
  const std::string most = std::to_string(kMax);
  EXPECT_EQ(value_of(most), kMax);
  for (const std::string& text :
       {most + " + 1", most + " * 2", "-" + most + " - 2", "bucket(" + most + ")",
        "-(-" + most + " - 1)", "(-" + most + " - 1) / -1", "(-" + most + " - 1) % -1"}) {
    EXPECT_EQ(value_of(text), std::unexpected(Fault::kOverflow)) << text;
  }
}

TEST(ExpressionTest, DivisionByZeroHasNoValue) {
  for (const char* text : {"1 / (n - n)", "1 % (n - n)", "ceil_div(1, n - n)"}) {
    EXPECT_EQ(value_of(text), std::unexpected(Fault::kDivisionByZero)) << text;
  }
}

TEST(ExpressionTest, TextThatIsNoExpressionIsRefused) {
  for (const char* text : {"",
                           " ",
                           "1 +",
                           "* 2",
                           "(1",
                           "1)",
                           "1 2",
                           "min(1)",
                           "min()",
                           "min 1, 2",
                           "ceil_div(1)",
                           "ceil_div(1, 2, 3)",
                           "bucket(1, 2)",
                           "n n",
                           "n = 1",
                           "n ** 2",
                           "n // 2",
                           "a && b",
                           "1 < 2 < 3",
                           "99999999999999999999",
                           "1x",
                           "and",
                           "not",
                           "not or 1",
                           "\x01",
                           "n;",
                           "n\n%",
                           "$"}) {
    EXPECT_NE(refusal_of(text), "") << text;
  }
}

TEST(ExpressionTest, RefusalNamesThePlaceAndWhatToWriteInstead) {
  for (const auto& [text, refusal] : std::initializer_list<std::pair<const char*, const char*>>{
           {"n + * 2", "expression \"n + * 2\", character 5: a value was expected and not \"*\""},
           {"n % WIDTH", "the name `WIDTH` is unknown; there are `n`, `VEC`, `BLOCK`"},
           {"n / 0", "it divides by zero"},
           {"n % 0", "it divides by zero"},
           {"ceil_div(n, 0)", "it divides by zero"},
           {"n // 2", "character 3: there is no `//`; write `/`, which rounds towards zero"},
           {"(n // 2) * VEC", "character 4: there is no `//`"},
           {"min(n // 2, VEC)", "character 7: there is no `//`"},
           {"ceil_div(n ** 2, VEC)", "there is no `**`; write a product, as in `a * a`"},
           {"n > 1 && VEC > 1", "there is no `&&`; write `and`"},
           {"n > 1 || VEC > 1", "there is no `||`; write `or`"},
           {"!(n > 1)", "character 1: there is no `!`; write `not`"},
           {"n > 1 and !VEC", "there is no `!`"},
           {"n = 1", "there is no `=`; write `==`"},
           {"n << 1", "there is no `<<`; write a product with a power of two"},
           {"n >> 1", "there is no `>>`"},
           {"n > 1 ? VEC : 1", "there is no `?`; write a sum of products with comparisons"},
           {"VEC if n > 1 else 1", "there is no `if`"}}) {
    EXPECT_THAT(refusal_of(text), HasSubstr(refusal)) << text;
  }
  EXPECT_THAT(tests::error_of(Expression::parse("n", {})).message, HasSubstr("there are no names"));
}

TEST(ExpressionTest, NestingAndLengthAreBounded) {
  const auto nested = [](std::size_t depth) {
    return std::string(depth, '(') + "n" + std::string(depth, ')');
  };
  EXPECT_EQ(value_of(nested(15)), 1000);
  EXPECT_THAT(refusal_of(nested(40)), HasSubstr("nested too deep"));
  EXPECT_THAT(refusal_of(std::string(100, '-') + "n"), HasSubstr("nested too deep"));
  EXPECT_THAT(refusal_of(std::string(2000, ' ') + "n"), HasSubstr("at most 1000"));
  std::string sum = "1";
  for (int i = 0; i < 200; ++i) sum += "+1";
  EXPECT_THAT(refusal_of(sum), HasSubstr("it is too long"));
}

// What a level of nesting leaves on the stack, as deep as it goes.
TEST(ExpressionTest, DeepestNestingHasItsValue) {
  std::string text = "n";
  std::int64_t expected = 1000;
  for (int i = 0; i < 15; ++i) {
    text = "1 + 1 * (" + text + ")";
    expected += 1;
  }
  EXPECT_EQ(value_of(text), expected);
}

TEST(ExpressionTest, ReadsTellsWhichNamesMatter) {
  const auto parsed = tests::value_of(Expression::parse("n % VEC", kNames));
  EXPECT_TRUE(parsed.reads(0));
  EXPECT_TRUE(parsed.reads(1));
  EXPECT_FALSE(parsed.reads(2));
}

}  // namespace
}  // namespace dorajit::own_kernels
