// Dimensions that are expressions of others, and tensors that are aligned to their elements alone.
#include <gmock/gmock.h>

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "autotune/search/operand_contents.h"
#include "autotune/search/scratch_operands.h"
#include "kernel_templates/integer_types.h"
#include "kernel_templates/sizes.h"
#include "kernel_templates/template.h"
#include "runtime/launch/problem.h"
#include "tests/fakes/fake_device.h"
#include "tests/fakes/results.h"
#include "tests/own_kernels/fake_gpu.h"
#include "tests/own_kernels/made_kernels.h"
#include "tests/own_kernels/strided_kernels.h"

namespace dorajit::tests {
namespace {

using autotune::ScratchOperands;
using kernels::Sizes;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

// Pairs of elements, and a scale for 32 elements of a row.
Json packed_kernel() {
  return with(swiglu(), {{"/arguments",
                          {{"gate", "in", "T[n]"},
                           {"up", "in", "T[(n + 1) / 2]"},
                           {"out", "out", "T[n, ceil_div(n, 32)]"},
                           {"n", "int64"}}}});
}

class ShapesTest : public OwnKernelTest {
 protected:
  ShapesTest() {
    set_variable("DORAJIT_TUNE", "off");
    fake_->launch = [](const char*, const driver::LaunchConfig&, void**) { return 0; };
  }

  // Of vectors whose data lies `shift` floats beyond a multiple of 16 bytes; "" if it ran.
  std::string call(const Json& json, std::vector<std::int64_t> sizes_of_up,
                   std::vector<std::int64_t> sizes_of_out, std::size_t shift = 0) {
    alignas(16) static std::array<float, 1024> gate;
    alignas(16) static std::array<float, 1024> up;
    alignas(16) static std::array<float, 1024> out;
    std::int64_t n = 100;
    const DLTensor tensors[] = {
        vector(gate.data() + shift, 1, &n),
        vector(up.data(), static_cast<int>(sizes_of_up.size()), sizes_of_up.data()),
        vector(out.data(), static_cast<int>(sizes_of_out.size()), sizes_of_out.data())};
    const DLTensor* const pointers[] = {&tensors[0], &tensors[1], &tensors[2]};
    const double given = 100;
    return bindings::outcome_of([&](dorajit_error** error) {
             return dorajit_launch(engine(), nullptr, create(json), pointers, 3, &given, 1, nullptr,
                                   0, error);
           })
        .message;
  }

  static DLTensor vector(float* data, int ndim, std::int64_t* shape) {
    return {.data = data,
            .device = {kDLCUDA, 0},
            .ndim = ndim,
            .dtype = {kDLFloat, 32, 1},
            .shape = shape,
            .strides = nullptr,
            .byte_offset = 0};
  }
};

TEST_F(ShapesTest, DimensionMayFollowFromOthers) {
  EXPECT_EQ(call(packed_kernel(), {50}, {100, 4}), "");
  EXPECT_THAT(call(packed_kernel(), {51}, {100, 4}),
              HasSubstr("argument `up` has 51 `(n + 1) / 2`, which is 50 for the other sizes"));
  EXPECT_THAT(call(packed_kernel(), {50}, {100, 3}),
              HasSubstr("argument `out` has 3 `ceil_div(n, 32)`, which is 4 for the other sizes"));
  EXPECT_THAT(call(packed_kernel(), {50}, {400}), HasSubstr("give it [n, ceil_div(n, 32)]"));
}

TEST(Shapes, ComputedSizesAreInNoKeyAndFollowWhereSizesAreChanged) {
  const kernels::Variant variant = variant_of(made(packed_kernel()));
  const launch::Problem problem =
      launch::make_problem(variant, kernels::DeviceKind::kCuda, Sizes{100});
  EXPECT_THAT(to_text(problem), testing::EndsWith("/f32,f32,f32/v4/n7"));
  EXPECT_EQ(launch::parse_problem(to_text(problem)), problem);
  const Sizes largest = problem.largest_sizes();
  EXPECT_THAT(std::vector(largest.begin(), largest.begin() + 3), ElementsAre(124, 62, 4));
  for (const Sizes& sizes : kernels::template_of(variant).verification_sizes(variant, largest)) {
    EXPECT_EQ(sizes[1], (sizes[0] + 1) / 2);
    EXPECT_EQ(sizes[2], (sizes[0] + 31) / 32);
  }
  // Beyond 64 bits.
  const Json square = with(packed_kernel(), {{"/arguments/1/2", "T[n * n * n]"}});
  const std::string name = kernels::full_name(made(square));
  EXPECT_TRUE(launch::parse_problem(name + "/f32,f32,f32/v8/n10"));
  EXPECT_FALSE(launch::parse_problem(name + "/f32,f32,f32/v8/n40"));
}

TEST(Shapes, WhatIsWrongIsNamed) {
  expect_refusals(packed_kernel(),
                  {{{{"/arguments/1/2", "T[n / 0]"}}, "it divides by zero"},
                   {{{"/arguments/1/2", "T[m / 2]"}}, "the name `m` is unknown"},
                   {{{"/arguments/1/2", "T[-1]"}}, "stride `-1`, which is not positive"},
                   {{{"/arguments/1/2", "T[n:2 - 4]"}}, "stride `2 - 4`, which is not positive"},
                   {{{"/arguments/1/2", "T[BLOCK / 2]"}}, "the name `BLOCK` is unknown"},
                   {{{"/arguments/1/2", "T[ceil_div(n, 2]"}}, "has a dimension: "},
                   {{{"/key/-", "(n + 1) / 2"}}, "\"key\" has `(n + 1) / 2`, which is no name"}});
}

TEST_F(ShapesTest, TensorMayBeAlignedToItsElements) {
  EXPECT_THAT(call(packed_kernel(), {50}, {100, 4}, 1), HasSubstr("`gate` lies at"));
  const Json unaligned = with(packed_kernel(), {{"/unaligned", {"gate"}}});
  EXPECT_EQ(call(unaligned, {50}, {100, 4}, 1), "");
}

class ScratchTest : public testing::Test {
 protected:
  ScratchOperands scratch(const Json& json, const Sizes& sizes, bool misaligns = false) {
    variant_ = variant_of(made(json));
    shape_ = {
        .sizes = kernels::with_derived(variant_, sizes), .vector_width = 8, .misaligns = misaligns};
    return value_of(ScratchOperands::make(device_, variant_, shape_));
  }
  static std::uintptr_t place(const ScratchOperands& operands, std::size_t operand) {
    return std::bit_cast<std::uintptr_t>(operands.arguments(0).operands[operand].data) % 16;
  }

  FakeDevice device_{1};
  kernels::Variant variant_;
  autotune::ScratchShape shape_;
};

TEST_F(ScratchTest, VerificationMisalignsWhatCallsMay) {
  const Json json = with(packed_kernel(), {{"/unaligned", {"gate"}}});
  EXPECT_EQ(place(scratch(json, {100}, true), 0), 4U);
  EXPECT_EQ(place(scratch(json, {100}, true), 1), 0U);
  EXPECT_EQ(place(scratch(json, {100}), 0), 0U);
}

TEST_F(ScratchTest, ElementsWithStridesHaveTheirSamplesAndGapsBetweenThem) {
  for (const std::int64_t rows : {3, 3000}) {
    const auto operands = scratch(strided_kernel(), {rows, 40});
    const std::int64_t stride = shape_.sizes[2];
    ASSERT_EQ(stride, 64);
    const auto* const x = static_cast<const float*>(operands.arguments(0).operands[0].data);
    const auto samples = value_of(autotune::random_elements(
        variant_, 0, shape_.sizes, static_cast<std::size_t>(rows) * 40, shape_.seed * 31));
    const auto* const wanted = reinterpret_cast<const float*>(samples.data());
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t made = r % 1024;  // rows after which they repeat
      EXPECT_EQ(x[r * stride + 39], wanted[made * 40 + 39]) << r;
      if (r + 1 < rows) EXPECT_TRUE(std::isnan(x[r * stride + 40])) << r;
    }
  }
}

TEST_F(ScratchTest, GapsOfIndicesAreIndices) {
  Json json = with(strided_kernel(), {{"/types/T", {"int32"}}, {"/limits", {{"x", 10}}}});
  variant_ = variant_of(made(json), kernels::kInt32);
  shape_ = {.sizes = kernels::with_derived(variant_, {20, 40}), .vector_width = 8};
  auto operands = value_of(ScratchOperands::make(device_, variant_, shape_));
  const auto* const x = static_cast<const std::int32_t*>(operands.arguments(0).operands[0].data);
  constexpr std::ptrdiff_t kElements = 19 * 64 + 40;
  const std::vector<std::int32_t> values(x, x + kElements);
  EXPECT_THAT(values, Each(testing::AllOf(testing::Ge(0), testing::Lt(10))));
  ASSERT_TRUE(operands.fill_gaps(0, ScratchOperands::Gaps::kZeros));
  EXPECT_THAT(std::vector<std::int32_t>(x + 40, x + 64), Each(0));
  EXPECT_EQ(x[64], values[64]);
  ASSERT_TRUE(operands.fill_gaps(0, ScratchOperands::Gaps::kUsual));
  EXPECT_EQ(std::vector<std::int32_t>(x, x + kElements), values);
}

TEST_F(ScratchTest, GapsOfOutputsAreNotWritten) {
  const auto operands = scratch(strided_kernel(), {20, 40});
  auto* const out = static_cast<float*>(operands.arguments(0).operands[1].data);
  EXPECT_TRUE(value_of(operands.keeps_gaps(0)));
  for (std::ptrdiff_t r = 0; r < 20; ++r) std::fill_n(out + r * 64, 40, 1.0F);
  EXPECT_TRUE(value_of(operands.keeps_gaps(0)));
  EXPECT_EQ(value_of(operands.usual_sizes(0)).size(), 0U);
  out[41] = 0;
  EXPECT_FALSE(value_of(operands.keeps_gaps(0)));
}

}  // namespace
}  // namespace dorajit::tests
