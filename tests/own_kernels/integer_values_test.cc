// The values that tuning makes up for inputs: integers below their limits, floating-point numbers
// in their ranges.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "autotune/search/operand_contents.h"
#include "kernel_templates/integer_types.h"
#include "kernel_templates/template.h"
#include "own_kernels/kernel.h"
#include "runtime/launch/problem.h"
#include "tests/own_kernels/made_kernels.h"

namespace dorajit::own_kernels {
namespace {

using kernels::ElementType;
using kernels::Operation;
using kernels::Sizes;
using kernels::Variant;
using testing::HasSubstr;
using tests::expect_refusals;
using tests::gather;
using tests::Json;
using tests::made;
using tests::with;

// A kernel whose `x` has that type, and which is read.
Json with_input_of(std::string_view type) {
  return with(gather(), {{"/arguments/0", {"ids", "in", std::format("{}[n]", type)}},
                         {"/types/I", tests::kErased},
                         {"/key", {"T", "bucket(n)", "bucket(rows)", "width"}},
                         {"/limits", tests::kErased}});
}

Variant variant_of(const Operation& operation, std::vector<ElementType> types) {
  Variant variant{.operation = &operation};
  std::ranges::copy(types, variant.types.begin());
  return variant;
}

// Of a kernel whose `ids` have that type and limit; sizes are 100 ids and 5 rows of 7.
std::vector<std::int64_t> values_of(Json json, const kernels::IntegerType& type,
                                    std::size_t count = 10000) {
  const Variant variant =
      variant_of(made(json), {type.type, ElementType::kFloat32, ElementType::kFloat32});
  const auto bytes = autotune::random_elements(variant, 0, Sizes{100, 5, 7}, count, 1);
  if (!bytes) throw std::runtime_error(bytes.error().message);
  const auto size = static_cast<std::size_t>(type.bytes);
  EXPECT_EQ(bytes->size(), count * size);
  std::vector<std::int64_t> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    std::memcpy(&values[i], bytes->data() + i * size, size);
  }
  return values;
}

TEST(IntegerValuesTest, ProblemTextNamesIntegerTypes) {
  const Variant variant =
      variant_of(made(gather()), {kernels::kInt64, ElementType::kBfloat16, ElementType::kBfloat16});
  ASSERT_TRUE(kernels::is_supported(variant));
  const launch::Problem problem =
      launch::make_problem(variant, kernels::DeviceKind::kCuda, Sizes{1000, 32000, 64});
  EXPECT_THAT(to_text(problem), testing::EndsWith("/i64,bf16,bf16/v8/width=64/n10/rows=15"))
      << to_text(problem);
  EXPECT_EQ(launch::parse_problem(to_text(problem)), problem);
}

TEST(IntegerValuesTest, EveryIntegerTypeIsReadBackByItsNames) {
  for (const kernels::IntegerType& type : kernels::kIntegerTypes) {
    EXPECT_EQ(kernels::parse_element_type(kernels::name(type.type)), type.type);
    const Operation& operation = made(with_input_of(type.name));
    EXPECT_THAT(std::string(operation.description), HasSubstr(std::format("{}[n]", type.name)));
    const Variant variant =
        variant_of(operation, {type.type, ElementType::kFloat32, ElementType::kFloat32});
    EXPECT_TRUE(kernels::is_supported(variant)) << type.name;
    EXPECT_EQ(kernels::parse_variant(to_text(variant)), variant);
    EXPECT_FALSE(kernels::is_supported(variant_of(
        operation, {ElementType::kFloat64, ElementType::kFloat32, ElementType::kFloat32})));
  }
}

TEST(IntegerValuesTest, OperationsOfTheLibraryHaveNoIntegers) {
  for (const kernels::IntegerType& type : kernels::kIntegerTypes) {
    Variant variant{.operation = &kernels::operation("compose")};
    ASSERT_TRUE(kernels::is_supported(variant));
    variant.types[2] = type.type;
    EXPECT_FALSE(kernels::is_supported(variant)) << type.name;
    EXPECT_EQ(launch::parse_problem(std::format("compose/f32,f32,{},f32/v8/c64/r4", type.text)),
              std::nullopt);
  }
}

TEST(IntegerValuesTest, CanonicalTextHasTheLimits) {
  const Operation& operation = made(gather());
  EXPECT_EQ(&made(Json::parse(operation.description)), &operation);
  EXPECT_NE(&made(with(gather(), {{"/limits/ids", "min(rows, 100)"}})), &operation);
}

TEST(IntegerValuesTest, DescriptionWithoutLimitsKeepsItsName) {
  const Json empty = with(tests::swiglu(), {{"/limits", Json::object()}});
  EXPECT_EQ(&made(empty), &made(tests::swiglu()));
  EXPECT_THAT(std::string(made(empty).description), testing::Not(HasSubstr("limits")));
}

TEST(IntegerValuesTest, ValuesAreFromZeroToBelowTheLimit) {
  for (const kernels::IntegerType& type : kernels::kIntegerTypes) {
    if (type.type == kernels::kBool) continue;
    const auto values = values_of(with(with_input_of(type.name), {{"/limits/ids", "rows"}}), type);
    EXPECT_EQ(std::set(values.begin(), values.end()), (std::set<std::int64_t>{0, 1, 2, 3, 4}))
        << type.name;
  }
}

TEST(IntegerValuesTest, ValuesWithoutALimitAreSmall) {
  for (const kernels::IntegerType& type : kernels::kIntegerTypes) {
    const auto values = values_of(with_input_of(type.name), type);
    EXPECT_EQ(std::ranges::min(values), 0) << type.name;
    EXPECT_EQ(std::ranges::max(values), type.type == kernels::kBool ? 1 : 127) << type.name;
  }
}

TEST(IntegerValuesTest, LimitBeyondTheTypeIsThatOfTheType) {
  for (const kernels::IntegerType& type : kernels::kIntegerTypes) {
    if (type.type == kernels::kBool) continue;
    const auto values =
        values_of(with(with_input_of(type.name), {{"/limits/ids", "9223372036854775807"}}), type);
    EXPECT_GE(std::ranges::min(values), 0) << type.name;
    EXPECT_LE(std::ranges::max(values), type.most) << type.name;
    EXPECT_GT(std::ranges::max(values), type.most / 2) << type.name;
  }
}

TEST(IntegerValuesTest, LimitThatIsNotPositiveForTheSizesIsAnError) {
  Json json = with(with_input_of("int32"), {{"/limits/ids", "rows - 5"}});
  const kernels::IntegerType& int32 = *kernels::as_integer(kernels::kInt32);
  const auto message_of = [&](const Json& of) -> std::string {
    try {
      values_of(of, int32);
    } catch (const std::exception& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message_of(json), HasSubstr("gather: the limit of `ids` is not positive for 100 n"));
  json["limits"]["ids"] = "rows / (rows - 5)";
  EXPECT_THAT(message_of(json), HasSubstr("the limit of `ids` is not positive"));
  EXPECT_TRUE(values_of(json, int32, 0).empty());
}

// Otherwise the tuner would verify configs on values that the kernel does not serve.
TEST(IntegerValuesTest, SizesWithoutValuesAreNotVerified) {
  const Json json = with(gather(), {{"/limits/ids", "rows - 1000000"}});
  const Variant variant =
      variant_of(made(json), {kernels::kInt64, ElementType::kFloat32, ElementType::kFloat32});
  const Sizes problem{4096, 1 << 20, 64};
  for (const Sizes& sizes : kernels::template_of(variant).verification_sizes(variant, problem)) {
    EXPECT_GT(sizes[1], 1000000);
  }
}

TEST(IntegerValuesTest, RefusedLimitIsNamed) {
  expect_refusals(
      gather(),
      {{{{"/limits", {"ids"}}}, "\"limits\" is no object"},
       {{{"/limits/ids", 1.5}}, "\"limits\" is no expression"},
       {{{"/limits/idx", "rows"}}, "\"limits\" has `idx`, which is no tensor"},
       {{{"/limits/n", "rows"}}, "has `n`, which is no tensor"},
       {{{"/limits/table", "rows"}}, "has `table`, whose elements are not integers"},
       {{{"/arguments/2/2", "I[n, width]"}, {"/limits/out", 5}},
        "has `out`, which is only written"},
       {{{"/types/I", {"int8", "bool"}}}, "has `ids`, whose elements are not integers"},
       {{{"/limits/ids", 0}}, "whose limit \"0\" is 0"},
       {{{"/limits/ids", "3 - 7"}}, "whose limit \"3 - 7\" is -4"},
       {{{"/limits/ids", "9223372036854775807 + 1"}}, "overflows 64 bits"},
       {{{"/limits/ids", "BLOCK"}}, "the name `BLOCK` is unknown"},
       {{{"/limits/ids", "m"}}, "the name `m` is unknown"},
       {{{"/types/I", {"uint24"}}},
        "has \"uint24\" for `I`; there are float32, bfloat16, float16, float64, int8, int16, "
        "int32, "
        "int64, uint8, bool, uint16, uint32, uint64"},
       {{{"/arguments/0/2", "float8[n]"}},
        "none of float32, bfloat16, float16, float64, int8, int16, int32, int64, uint8, bool, "
        "uint16, uint32, uint64"},
       {{{"/types/bool", {"int8"}}}, "a type already"}});
}

Json gather_of_floats() { return tests::with(gather(), {{"/types/T", {"float32", "bfloat16"}}}); }

// Of the table, whose elements are float32.
std::vector<float> table_values(const Json& json) {
  constexpr std::size_t kCount = 10000;
  const kernels::Variant variant{
      .operation = &made(json),
      .types = {kernels::kInt64, ElementType::kFloat32, ElementType::kFloat32}};
  const auto bytes = autotune::random_elements(variant, 1, kernels::Sizes{100, 5, 7}, kCount, 1);
  if (!bytes) throw std::runtime_error(bytes.error().message);
  std::vector<float> values(kCount);
  std::memcpy(values.data(), bytes->data(), bytes->size());
  return values;
}

TEST(RangesTest, ValuesLieInTheRangeAndFillIt) {
  const Json json = tests::with(gather_of_floats(), {{"/ranges/table", {0.5, 2}}});
  const auto [least, most] = std::ranges::minmax(table_values(json));
  EXPECT_GE(least, 0.5F);
  EXPECT_LT(least, 0.51F);
  EXPECT_LE(most, 2.0F);
  EXPECT_GT(most, 1.99F);
}

TEST(RangesTest, ValuesWithoutARangeAreAroundZero) {
  const auto [least, most] = std::ranges::minmax(table_values(gather_of_floats()));
  EXPECT_LT(least, -2.0F);
  EXPECT_GT(most, 2.0F);
}

TEST(RangesTest, RangeIsPartOfTheKernelsIdentity) {
  Json json = tests::with(gather_of_floats(), {{"/ranges/table", {0.5, 2}}});
  const kernels::Operation& operation = made(json);
  EXPECT_NE(&operation, &made(gather_of_floats()));
  EXPECT_EQ(&made(Json::parse(operation.description)), &operation);
  json["ranges"] = Json::object();
  EXPECT_EQ(&made(json), &made(gather_of_floats()));
}

TEST(RangesTest, RefusedRangeIsNamed) {
  tests::expect_refusals(
      gather_of_floats(),
      {{{{"/ranges", {"table"}}}, "\"ranges\" is no object"},
       {{{"/ranges/table", 1}}, "has for `table` what is no [least, most]"},
       {{{"/ranges/table", {2, 1}}}, "has for `table` what is no [least, most]"},
       {{{"/ranges/table", {-1.5e308, 1.5e308}}}, "has for `table` what is no [least, most]"},
       {{{"/ranges/table", {0, 4e38}}},
        "has `table`, whose range is beyond 3.40282e+38, the largest number of its type"},
       {{{"/ranges/no", {0, 1}}}, "\"ranges\" has `no`, which is no tensor"},
       {{{"/ranges/out", {0, 1}}}, "has `out`, which is only written"},
       {{{"/ranges/ids", {0, 1}}}, "has `ids`, whose elements may be integers"}});
}

}  // namespace
}  // namespace dorajit::own_kernels
