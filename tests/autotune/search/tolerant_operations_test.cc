// Verification and spaces of operations whose bits may differ from the reference.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <vector>

#include "autotune/search/scratch_operands.h"
#include "autotune/search/tuning_session.h"
#include "autotune/search/verification.h"
#include "kernel_templates/reference.h"
#include "kernel_templates/spaces.h"
#include "runtime/device/cpu/cpu_device.h"
#include "runtime/launch/kernel_cache.h"
#include "tests/fakes/fake_device.h"

namespace dorajit::autotune {
namespace {

using kernels::Variant;
using enum kernels::ElementType;

// The reference and the kernel round nearly equal numbers, which sometimes gives neighbouring
// values.
TEST(TolerantOperations, SixteenBitOutputsMayDifferByOneRoundingStep) {
  Settings settings;
  settings.host_compiler = "none";
  Statistics statistics;
  launch::KernelCache builtin(settings, nullptr, statistics);
  device::CpuDevice device;
  for (const auto type : {kBfloat16, kFloat16}) {
    const Variant variant{.operation = &kernels::operation("compose_low_rank"),
                          .types = {type, type, type, kFloat32, kAbsent, type, type}};
    const auto problem = launch::make_problem(variant, kernels::DeviceKind::kCpu, {256, 1024, 96});
    auto verifier = Verifier::make(problem, device);
    ASSERT_TRUE(verifier) << verifier.error().message;
    const auto ready = builtin.get(device, variant, {});
    ASSERT_TRUE(ready) << ready.error().message;
    EXPECT_EQ(verifier->check(*ready), Result<cache::Verdict>(cache::Verdict::kOk));
  }
}

// The result of the comparison after `spoil` has changed an element of the reference's output, in
// f32 or in bf16. `spoil` gets the output's root mean square. The element may be expected to be
// another one than the reference's.
ScratchOperands::Difference compare_spoiled(
    kernels::ElementType type, const std::function<double(double value, double usual)>& spoil,
    std::optional<double> wanted = {}) {
  const Variant variant{.operation = &kernels::operation("compose_low_rank"),
                        .types = {kBfloat16, kBfloat16, type, kFloat32, kAbsent, type, kAbsent}};
  device::CpuDevice device;
  auto operands = ScratchOperands::make(
      device, variant, {.sizes = {8, 16, 4}, .vector_width = 1, .seed = 1, .guard_bytes = 64});
  EXPECT_TRUE(operands) << operands.error().message;
  std::vector<std::byte> outputs = operands->reference_outputs(0).value();
  const std::vector<std::byte> image = operands->read(0).value();
  const kernels::OperandArgument place{.data = outputs.data(), .row_stride = 16};
  double squares = 0;
  for (int i = 0; i < 16; ++i) {
    squares += std::pow(kernels::load_element<double>(place, type, 0, i), 2);
  }
  const double value = kernels::load_element<double>(place, type, 0, 3);
  if (wanted) kernels::store_element(place, type, 0, 3, *wanted);
  const std::vector<std::byte> expected = operands->with_outputs(image, outputs);
  kernels::store_element(place, type, 0, 3, spoil(value, std::sqrt(squares / 16)));
  return operands->compare(operands->with_outputs(image, outputs), expected,
                           ScratchOperands::Closeness::kWithinTolerance);
}

TEST(TolerantOperations, OutputsBeyondTheToleranceAreRefused) {
  using enum ScratchOperands::Difference;
  const auto times = [](double factor) {
    return [factor](double value, double) { return value * factor; };
  };
  EXPECT_EQ(compare_spoiled(kBfloat16, times(1 + 0x1p-8)), kNone);
  EXPECT_EQ(compare_spoiled(kBfloat16, times(1 + 0x1p-5)), kOutputs);
  EXPECT_EQ(compare_spoiled(kFloat32, times(1 + 1e-6)), kNone);
  EXPECT_EQ(compare_spoiled(kFloat32,
                            [](double value, double usual) {
                              return value + 1e-3 * (std::abs(value) + usual);
                            }),
            kOutputs);
  EXPECT_EQ(compare_spoiled(kFloat32, times(std::numeric_limits<double>::quiet_NaN())), kOutputs);
}

TEST(TolerantOperations, NanAndInfinityAreNearTheSameBitsAlone) {
  using enum ScratchOperands::Difference;
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto to = [](double made) { return [made](double, double) { return made; }; };
  for (const auto type : {kFloat32, kBfloat16}) {
    EXPECT_EQ(compare_spoiled(type, to(kNan), kNan), kNone);
    EXPECT_EQ(compare_spoiled(type, to(kInfinity), kInfinity), kNone);
    EXPECT_EQ(compare_spoiled(type, to(-kInfinity), kInfinity), kOutputs);
    EXPECT_EQ(compare_spoiled(type, to(1), kInfinity), kOutputs);
    EXPECT_EQ(compare_spoiled(type, to(kInfinity), 1), kOutputs);
    EXPECT_EQ(compare_spoiled(type, to(kNan), kInfinity), kOutputs);
    EXPECT_EQ(compare_spoiled(type, to(1), kNan), kOutputs);
  }
}

// The tensor memory accelerator moves them, even if their elements are half as wide as the
// result's.
TEST(TolerantOperations, WidestAlignmentClassAlignsFactorsOfLongRanksTo16Bytes) {
  const Variant variant{
      .operation = &kernels::operation("compose_low_rank"),
      .types = {kBfloat16, kBfloat16, kFloat32, kFloat32, kAbsent, kFloat32, kAbsent}};
  const auto stride = [&](std::int64_t rank, int vector_width) {
    tests::FakeDevice device(4);
    device.pose_as_gpu(9, 0);
    const auto operands = ScratchOperands::make(
        device, variant,
        {.sizes = {8, 16, rank}, .vector_width = vector_width, .seed = 1, .guard_bytes = 64});
    EXPECT_TRUE(operands) << operands.error().message;
    return operands->arguments(0).operands[0].row_stride;
  };
  EXPECT_EQ(stride(100, 4), 104);
  EXPECT_EQ(stride(100, 2), 100);
  EXPECT_EQ(stride(28, 4), 28);
}

TEST(TolerantOperations, OnlyConfigsThatFitTheSizesAreCandidates) {
  const Variant variant{
      .operation = &kernels::operation("weight_norm"),
      .types = {kBfloat16, kBfloat16, kBfloat16, kAbsent, kFloat32, kAbsent, kAbsent, kAbsent}};
  device::DeviceInfo device;
  device.traits = {.kind = kernels::DeviceKind::kCuda, .processors = 132, .architecture = 90};
  const auto candidates = [&](std::int64_t rank) {
    const auto problem =
        launch::make_problem(variant, kernels::DeviceKind::kCuda, {4096, 4096, rank});
    const TuningSession session(problem, device, kernels::SpaceKind::kSlim);
    for (const kernels::Config& config : session.space) {
      EXPECT_EQ(kernels::why_config_is_invalid(variant, device.traits, problem.vector_width,
                                               problem.largest_sizes(), config),
                "");
    }
    return session.space.size();
  };
  EXPECT_LT(candidates(1024), candidates(64));  // with rank 64, B leaves more shared memory
}

}  // namespace
}  // namespace dorajit::autotune
