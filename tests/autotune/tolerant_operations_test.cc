// Verification and spaces of operations that are not the same to the bit everywhere.
#include <gtest/gtest.h>

#include "autotune/tuning_session.h"
#include "autotune/verification.h"
#include "kernel_templates/config_limits.h"
#include "runtime/device/cpu/cpu_device.h"
#include "runtime/launch/kernel_cache.h"

namespace dorajit::autotune {
namespace {

using kernels::Variant;
using enum kernels::ElementType;

// The reference and the kernel round nearly the same numbers, now and then to neighbours.
TEST(TolerantOperations, OutputsOfSixteenBitsMayBeRoundedToNeighbours) {
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

TEST(TolerantOperations, CandidatesAreThoseThatFitTheProblemsSizes) {
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
  EXPECT_LT(candidates(1024), candidates(64));  // whose rows of B leave more shared memory
}

}  // namespace
}  // namespace dorajit::autotune
