// compose_low_rank on the CPU device: within its error bound, with the same bits from every kernel.
#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/device/cpu/cpu_device.h"
#include "tests/conformance/low_rank_cases.h"
#include "tests/fakes/memory_artifact_store.h"

namespace dorajit::tests {
namespace {

Settings without_compiler() {
  Settings settings;
  settings.host_compiler = "none";
  return settings;
}

class ComposeLowRankOnCpu : public testing::Test {
 protected:
  CaseOutcome run(launch::KernelCache& kernels, const LowRankTypes& types, const LowRankCase& one) {
    CaseOutcome outcome = run_low_rank(device_, kernels, types, one, kernels::SpaceKind::kSlim);
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

TEST_F(ComposeLowRankOnCpu, EveryConfigIsWithinTheBoundAndEqualsTheBuiltinKernel) {
  // Only one mix, because compilations are slow.
  const LowRankTypes types = low_rank_types()[1];
  for (const LowRankCase& one : low_rank_cases()) {
    EXPECT_EQ(run(compiled_, types, one).values, run(builtin_, types, one).values);
  }
  EXPECT_GT(statistics_.compilations, 0);
}

TEST_F(ComposeLowRankOnCpu, BuiltinKernelIsWithinTheBound) {
  for (const LowRankTypes& types : low_rank_types()) {
    for (const LowRankCase& one : low_rank_cases()) run(builtin_, types, one);
  }
  EXPECT_EQ(statistics_.compilations, 0);
}

TEST_F(ComposeLowRankOnCpu, SlicesTogetherRunEveryConfigAndEachTheDefault) {
  constexpr std::size_t kCount = 3;
  const auto configs_of = [&](const Slice& slice) {
    return run_low_rank(device_, builtin_, low_rank_types()[0],
                        {.rows = 5, .columns = 37, .rank = 6}, kernels::SpaceKind::kComprehensive,
                        slice)
        .configs;
  };
  const std::vector<kernels::Config> all = configs_of({});
  ASSERT_GT(all.size(), kCount);
  std::vector<kernels::Config> sliced = {all.front()};
  for (std::size_t i = 0; i < kCount; ++i) {
    const std::vector<kernels::Config> some = configs_of({.index = i, .count = kCount});
    ASSERT_FALSE(some.empty());
    EXPECT_EQ(some.front(), all.front());
    sliced.insert(sliced.end(), some.begin() + 1, some.end());
  }
  EXPECT_TRUE(std::ranges::is_permutation(sliced, all));
}

TEST_F(ComposeLowRankOnCpu, BuiltinKernelSupportsEveryMixOfTypes) {
  for (const kernels::Variant& variant :
       kernels::all_variants(kernels::operation("compose_low_rank"))) {
    const auto types = variant.operand_types();
    run(builtin_, {types.begin(), types.end()}, {.rows = 5, .columns = 37, .rank = 6});
  }
}

}  // namespace
}  // namespace dorajit::tests
