// The values that tuning makes up for floating-point inputs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "autotune/search/random_elements.h"
#include "kernel_templates/integer_types.h"
#include "own_kernels/kernel.h"
#include "tests/own_kernels/descriptions.h"

namespace dorajit::own_kernels {
namespace {

using kernels::ElementType;
using testing::HasSubstr;
using tests::gather;
using tests::Json;

const kernels::Operation& described(const Json& json) {
  const auto kernel = make_kernel(json.dump());
  if (!kernel) throw std::runtime_error(kernel.error().message);
  return **kernel;
}

Json gather_of_floats() {
  Json json = gather();
  json["types"]["T"] = {"float32", "bfloat16"};
  return json;
}

// Of the table, whose elements are float32.
std::vector<float> table_values(const Json& json) {
  constexpr std::size_t kCount = 10000;
  const kernels::Variant variant{
      .operation = &described(json),
      .types = {kernels::kInt64, ElementType::kFloat32, ElementType::kFloat32}};
  const auto bytes = autotune::random_elements(variant, 1, kernels::Sizes{100, 5, 7}, kCount, 1);
  if (!bytes) throw std::runtime_error(bytes.error().message);
  std::vector<float> values(kCount);
  std::memcpy(values.data(), bytes->data(), bytes->size());
  return values;
}

TEST(RangesTest, ValuesLieInTheRangeAndFillIt) {
  Json json = gather_of_floats();
  json["ranges"]["table"] = {0.5, 2};
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
  Json json = gather_of_floats();
  json["ranges"]["table"] = {0.5, 2};
  const kernels::Operation& operation = described(json);
  EXPECT_NE(&operation, &described(gather_of_floats()));
  EXPECT_EQ(&described(Json::parse(operation.description)), &operation);
  json["ranges"] = Json::object();
  EXPECT_EQ(&described(json), &described(gather_of_floats()));
}

TEST(RangesTest, RefusedRangeIsNamed) {
  struct Refusal {
    std::function<void(Json&)> change;
    const char* message;
  };
  const std::vector<Refusal> refusals = {
      {[](Json& j) { j["ranges"] = {"table"}; }, "\"ranges\" is no object"},
      {[](Json& j) { j["ranges"]["table"] = 1; }, "has for `table` what is no [least, most]"},
      {[](Json& j) { j["ranges"]["table"] = {2, 1}; }, "has for `table` what is no [least, most]"},
      {[](Json& j) { j["ranges"]["table"] = {-1.5e308, 1.5e308}; },
       "has for `table` what is no [least, most]"},
      {[](Json& j) { j["ranges"]["no"] = {0, 1}; }, "\"ranges\" has `no`, which is no tensor"},
      {[](Json& j) { j["ranges"]["out"] = {0, 1}; }, "has `out`, which is only written"},
      {[](Json& j) { j["ranges"]["ids"] = {0, 1}; }, "has `ids`, whose elements may be integers"}};
  for (const auto& [change, message] : refusals) {
    Json json = gather_of_floats();
    change(json);
    const auto kernel = make_kernel(json.dump());
    ASSERT_FALSE(kernel) << message;
    EXPECT_THAT(kernel.error().message, HasSubstr(message));
  }
}

}  // namespace
}  // namespace dorajit::own_kernels
