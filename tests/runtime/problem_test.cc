#include "runtime/launch/problem.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <limits>

#include "kernel_templates/sizes.h"
#include "tests/conformance/variant_lists.h"
#include "tests/variants.h"

namespace dorajit::launch {
namespace {

using enum kernels::ElementType;
using kernels::DeviceKind;

const kernels::Variant kMixed{.operation = &kernels::operation("compose"),
                              .types = {kBfloat16, kBfloat16, kFloat32, kBfloat16}};

TEST(Problem, BucketsRowsByTheNextPowerOfTwo) {
  const auto bucket = [](std::int64_t rows) {
    return make_problem(kMixed, DeviceKind::kCuda, {rows, 64}).key[kernels::kRows];
  };
  EXPECT_EQ(bucket(1), 0);
  EXPECT_EQ(bucket(2), 1);
  EXPECT_EQ(bucket(3), 2);
  EXPECT_EQ(bucket(4096), 12);
  EXPECT_EQ(bucket(4097), 13);
  EXPECT_EQ(bucket(std::int64_t{1} << 40), 40);
}

TEST(Problem, TextIsReadable) {
  EXPECT_EQ(to_text(make_problem(kMixed, DeviceKind::kCuda, {4096, 4096})),
            "compose/bf16,bf16,f32,bf16/v8/c4096/r12");
}

int width_of(std::uintptr_t address, std::int64_t row_stride, std::int64_t rows = 4) {
  std::array<TensorView, 4> operands;
  for (std::size_t i = 0; i < 4; ++i) {
    operands[i] = {.data = nullptr,
                   .type = kMixed.types[i],
                   .device = {.kind = DeviceKind::kCuda, .ordinal = 0},
                   .rows = i == 2 ? 1 : rows,
                   .cols = 100,
                   .row_stride = i == 2 ? 100 : 128};
  }
  operands[3].data = std::bit_cast<void*>(address);
  operands[3].row_stride = row_stride;
  return make_problem(kMixed, {}, operands).vector_width;
}

TEST(Problem, AlignmentClassIsTheWidestVectorThatEveryOperandAllows) {
  EXPECT_EQ(width_of(0x1000, 128), 8);
  EXPECT_EQ(width_of(0x1008, 128), 4);
  EXPECT_EQ(width_of(0x1004, 128), 2);
  EXPECT_EQ(width_of(0x1002, 128), 1);
  EXPECT_EQ(width_of(0x1000, 124), 4);
  EXPECT_EQ(width_of(0x1000, 101), 1);
  EXPECT_EQ(width_of(0x1000, 101, 1), 8) << "the stride of a single row does not matter";
}

// The alignment class of backward with one operand two bytes after a boundary.
int width_with_misaligned(std::size_t operand, kernels::Broadcast broadcast, bool has_d_lora) {
  kernels::Variant variant{
      .operation = &kernels::operation("backward"),
      .broadcast = broadcast,
      .types = {kBfloat16, kBfloat16, kBfloat16, kBfloat16, kBfloat16, kBfloat16}};
  if (!has_d_lora) variant.types[3] = kAbsent;
  std::array<TensorView, 6> operands;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    operands[i] = {.data = std::bit_cast<void*>(std::uintptr_t{i == operand ? 0x1002U : 0x1000U}),
                   .type = variant.types[i],
                   .device = {.kind = DeviceKind::kCuda, .ordinal = 0},
                   .rows = i == 2 || i == 5 ? 1 : 4,
                   .cols = 128,
                   .row_stride = 128};
  }
  return make_problem(variant, {}, operands).vector_width;
}

TEST(Problem, OperandsNotAccessedInVectorsDoNotLimitTheWidth) {
  using enum kernels::Broadcast;
  EXPECT_EQ(width_with_misaligned(0, kPerColumn, true), 1);
  EXPECT_EQ(width_with_misaligned(2, kPerColumn, true), 1) << "the gain is read along the columns";
  EXPECT_EQ(width_with_misaligned(2, kPerRow, true), 8) << "one element of it serves a whole row";
  EXPECT_EQ(width_with_misaligned(3, kPerColumn, true), 1);
  EXPECT_EQ(width_with_misaligned(3, kPerColumn, false), 8) << "absent";
  EXPECT_EQ(width_with_misaligned(5, kPerColumn, true), 8) << "sums are written one by one";
}

// The alignment class of compose_low_rank with bf16 factors, a result of the given type, and lora_B
// at the given address.
int width_of_low_rank(std::int64_t rank, std::uintptr_t lora_b, kernels::ElementType result_type) {
  const kernels::Variant variant{
      .operation = &kernels::operation("compose_low_rank"),
      .types = {kBfloat16, kBfloat16, result_type, kFloat32, kAbsent, result_type, kAbsent}};
  const kernels::Sizes sizes = {4, 128, rank};
  const auto& specs = variant.operation->operands;
  std::array<TensorView, 7> operands;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const std::int64_t length = kernels::row_length(specs[i].shape, sizes);
    operands[i] = {.data = std::bit_cast<void*>(i == 1 ? lora_b : std::uintptr_t{0x1000}),
                   .type = variant.types[i],
                   .device = {.kind = DeviceKind::kCuda, .ordinal = 0},
                   .rows = kernels::num_rows(specs[i].shape, sizes),
                   .cols = length,
                   .row_stride = length};
  }
  return make_problem(variant, sizes, operands).vector_width;
}

TEST(Problem, WidestClassAlignsBoxesOfTheCopyEngineTo16Bytes) {
  EXPECT_EQ(width_of_low_rank(72, 0x1000, kBfloat16), 8);
  EXPECT_EQ(width_of_low_rank(72, 0x1008, kBfloat16), 4);
  EXPECT_EQ(width_of_low_rank(72, 0x1002, kBfloat16), 4) << "narrower classes do not require it";
  EXPECT_EQ(width_of_low_rank(68, 0x1000, kBfloat16), 4) << "rows of 136 bytes";
  EXPECT_EQ(width_of_low_rank(32, 0x1002, kBfloat16), 8)
      << "the accelerator never moves short rows";
  EXPECT_EQ(width_of_low_rank(7, 0x1000, kBfloat16), 8);
  EXPECT_EQ(width_of_low_rank(72, 0x1000, kFloat32), 4);
  EXPECT_EQ(width_of_low_rank(72, 0x1008, kFloat32), 2);
}

TEST(Problem, KeysContainBroadcastAndAbsentOperands) {
  const kernels::Variant variant{
      .operation = &kernels::operation("backward"),
      .broadcast = kernels::Broadcast::kPerRow,
      .types = {kBfloat16, kBfloat16, kFloat32, kBfloat16, kAbsent, kFloat32}};
  EXPECT_EQ(to_text(make_problem(variant, DeviceKind::kCuda, {64, 49})),
            "backward.rows/bf16,bf16,f32,bf16,-,f32/v1/c49/r6");
}

TEST(Problem, CpuProblemsHaveOneAlignmentClass) {
  EXPECT_EQ(make_problem(kMixed, DeviceKind::kCpu, {4, 64}).vector_width, 1);
}

TEST(Problem, TextRoundTrips) {
  std::vector<Problem> problems;
  for (const kernels::Operation* op : kernels::all_operations()) {
    // Every type of every operand: those of all variants take long under sanitizers.
    for (kernels::Variant variant : tests::sampled_mixes(*op, 100)) {
      problems.push_back(make_problem(variant, kernels::DeviceKind::kCuda, {513, 4096}));
      variant.broadcast = kernels::Broadcast::kPerRow;
      problems.push_back(make_problem(variant, kernels::DeviceKind::kCpu, {1, 3}));
    }
  }
  for (const Problem& problem : problems) {
    EXPECT_EQ(parse_problem(to_text(problem)), problem) << to_text(problem);
  }
}

TEST(Problem, OtherTextIsRefused) {
  const std::string text =
      to_text(make_problem(tests::float_compose(), kernels::DeviceKind::kCuda, {512, 4096}));
  ASSERT_TRUE(parse_problem(text));
  for (std::size_t length = 0; length < text.size() - 1; ++length) {
    const auto parsed = parse_problem(text.substr(0, length));
    EXPECT_FALSE(parsed) << text.substr(0, length);
  }
  for (const char* wrong :
       {"", "/", "compose/f32,f32,f32,f32", "decompose/f32,f32,f32,f32/v4/c10/r3",
        "compose/f32,f32,f32/v4/c10/r3", "compose/f32,f32,f32,f32,f32/v4/c10/r3",
        "compose/f32,f32,f32,f31/v4/c10/r3", "compose/f32,f32,f32,f32/v4/c10/r3x",
        "compose/f32,f32,f32,f32/v4/c/r3", "compose.cols/f32,f32,f32,f32/v4/c10/r3"}) {
    EXPECT_FALSE(parse_problem(wrong)) << wrong;
  }
}

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
