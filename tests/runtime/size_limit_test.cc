#include <gtest/gtest.h>

#include <limits>

#include "runtime/launch/problem.h"

namespace dorajit::launch {
namespace {

using enum kernels::ElementType;

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
const kernels::Variant kFloats{.operation = &kernels::operation("compose"), .types = {}};

TensorView view_of(std::int64_t rows, std::int64_t cols, std::int64_t row_stride,
                   kernels::ElementType type = kFloat32) {
  return {.data = nullptr,
          .type = type,
          .device = {},
          .rows = rows,
          .cols = cols,
          .row_stride = row_stride};
}

std::int64_t power(int exponent) { return std::int64_t{1} << exponent; }

TEST(SizeLimit, SpanIncludesGapsBetweenRows) {
  TensorView view = view_of(3, 5, 8);
  EXPECT_EQ(span_bytes(view), 3 * 8 * 4);
  view.rows = 1;
  EXPECT_EQ(span_bytes(view), 5 * 4) << "the stride of one row does not count";
  view.cols = 0;
  EXPECT_EQ(span_bytes(view), 0);
}

TEST(SizeLimit, SpanBeyondTheAddressSpaceIsRefused) {
  EXPECT_EQ(span_bytes(view_of(power(15), power(30), power(30))), power(47));
  EXPECT_FALSE(span_bytes(view_of(power(15) + 1, power(30), power(30))));
  EXPECT_FALSE(span_bytes(view_of(2, 1, power(46))));
  EXPECT_FALSE(span_bytes(view_of(kMax, kMax, kMax)));
  EXPECT_FALSE(span_bytes(view_of(power(61), 1, 1, kFloat64)));
}

TEST(SizeLimit, ProblemsBeyondTheLimitAreRefused) {
  EXPECT_TRUE(check_size(kFloats, {power(20), power(20)}));
  EXPECT_TRUE(check_size({.variant = kFloats, .key = {0, power(45)}}));
  EXPECT_FALSE(check_size({.variant = kFloats, .key = {0, power(45) + 1}}));
  EXPECT_FALSE(check_size({.variant = kFloats, .key = {32, power(28)}}));
  for (const std::int64_t bucket : {61, 62, 63}) {
    const auto refused = check_size({.variant = kFloats, .key = {bucket, 1}});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, StatusCode::kInvalidArgument);
    EXPECT_NE(refused.error().message.find("2^47 bytes"), std::string::npos);
  }
}

// The rows of a problem are rounded up, which must not refuse sizes that a call may have.
TEST(SizeLimit, ProblemOfAnAllowedTensorIsAllowed) {
  for (const std::int64_t rows : {power(15), power(14) + 1, power(15) - 1}) {
    const TensorView view = view_of(rows, power(30), power(30));
    ASSERT_TRUE(span_bytes(view));
    EXPECT_TRUE(
        check_size(make_problem(kFloats, kernels::DeviceKind::kCpu, {view.rows, view.cols})));
  }
}

TEST(SizeLimit, TextOfAProblemBeyondTheLimitIsRefused) {
  EXPECT_TRUE(parse_problem("compose/f32,f32,f32,f32/v4/c4096/r33"));
  EXPECT_FALSE(parse_problem("compose/f32,f32,f32,f32/v4/c4096/r40"));
  EXPECT_FALSE(parse_problem("compose/f32,f32,f32,f32/v4/c268435456/r32"));
  EXPECT_FALSE(parse_problem("compose/f32,f32,f32,f32/v1/c1/r62"));
  EXPECT_FALSE(parse_problem("compose/f32,f32,f32,f32/v1/c9223372036854775807/r0"));
}

}  // namespace
}  // namespace dorajit::launch
