// weight_norm on the CPU device: within its error bound, with the same bits from every kernel.
#include <gtest/gtest.h>

#include "runtime/device/cpu/cpu_device.h"
#include "tests/conformance/weight_norm_cases.h"
#include "tests/fakes/memory_artifact_store.h"

namespace dorajit::tests {
namespace {

Settings without_compiler() {
  Settings settings;
  settings.host_compiler = "none";
  return settings;
}

class WeightNormOnCpu : public testing::Test {
 protected:
  CaseOutcome run(launch::KernelCache& kernels, const std::vector<kernels::ElementType>& types,
                  const WeightNormCase& one) {
    CaseOutcome outcome = run_weight_norm(device_, kernels, types, one, kernels::SpaceKind::kSlim);
    for (const std::string& failure : outcome.failures) ADD_FAILURE() << failure;
    EXPECT_FALSE(outcome.configs.empty());
    return outcome;
  }

  device::CpuDevice device_;
  Statistics statistics_;
  MemoryArtifactStore artifacts_;
  launch::KernelCache compiled_{Settings{}, &artifacts_, statistics_};
  launch::KernelCache builtin_{without_compiler(), nullptr, statistics_};
};

TEST_F(WeightNormOnCpu, EveryConfigIsWithinTheBoundAndEqualsTheBuiltinKernel) {
  using enum kernels::ElementType;
  // This list is limited, because compilations are slow.
  for (const auto& types :
       {std::vector{kBfloat16, kFloat32, kFloat16}, std::vector{kFloat64, kFloat64, kFloat64}}) {
    for (const WeightNormCase& one : weight_norm_cases()) {
      EXPECT_EQ(run(compiled_, types, one).values, run(builtin_, types, one).values);
    }
  }
  EXPECT_GT(statistics_.compilations, 0);
}

TEST_F(WeightNormOnCpu, BuiltinKernelIsWithinTheBoundForEveryMixOfTypes) {
  using enum kernels::ElementType;
  for (const auto& types : weight_norm_types()) {
    for (const WeightNormCase& one : weight_norm_cases()) run(builtin_, types, one);
    for (const WeightNormCase& one : weight_norms_of_one_sign()) run(builtin_, types, one);
  }
  for (const WeightNormCase& one : weight_norms_of_wide_range()) {
    run(builtin_, {kFloat32, kFloat32, kFloat32}, one);
  }
  EXPECT_EQ(statistics_.compilations, 0);
}

}  // namespace
}  // namespace dorajit::tests
