// compose_low_rank and weight_norm on the CPU device: within their error bounds, with the same bits
// from every kernel.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/conformance/cpu_kernels.h"
#include "tests/conformance/matrix_cases.h"

namespace dorajit::tests {
namespace {

class MatricesOnCpu : public CpuKernelsTest {
 protected:
  template <class Case>
  CaseOutcome run(launch::KernelCache& kernels, const Types& types, const Case& one) {
    CaseOutcome outcome = run_case(device_, kernels, types, one, kernels::SpaceKind::kSlim);
    for (const std::string& failure : outcome.failures) ADD_FAILURE() << failure;
    EXPECT_FALSE(outcome.configs.empty());
    return outcome;
  }

  template <class Case>
  void expect_equal_kernels(const Types& types, const std::vector<Case>& cases) {
    const std::int64_t before = statistics_.compilations;
    for (const Case& one : cases) {
      EXPECT_EQ(run(compiled_, types, one).values, run(builtin_, types, one).values);
    }
    EXPECT_GT(statistics_.compilations, before);
  }
};

// Only a few mixes, because compilations are slow.
TEST_F(MatricesOnCpu, EveryConfigIsWithinTheBoundAndEqualsTheBuiltinKernel) {
  using enum kernels::ElementType;
  expect_equal_kernels(low_rank_types()[1], low_rank_cases());
  expect_equal_kernels({kBfloat16, kFloat32, kFloat16}, weight_norm_cases());
  expect_equal_kernels({kFloat64, kFloat64, kFloat64}, weight_norm_cases());
}

TEST_F(MatricesOnCpu, BuiltinKernelIsWithinTheBound) {
  using enum kernels::ElementType;
  for (const Types& types : low_rank_types()) {
    for (const LowRankCase& one : low_rank_cases()) run(builtin_, types, one);
  }
  for (const Types& types : weight_norm_types()) {
    for (const WeightNormCase& one : weight_norm_cases()) run(builtin_, types, one);
    for (const WeightNormCase& one : weight_norms_of_one_sign()) run(builtin_, types, one);
  }
  for (const WeightNormCase& one : weight_norms_of_wide_range()) {
    run(builtin_, {kFloat32, kFloat32, kFloat32}, one);
  }
  EXPECT_EQ(statistics_.compilations, 0);
}

TEST_F(MatricesOnCpu, SlicesTogetherRunEveryConfigAndEachTheDefault) {
  constexpr std::size_t kCount = 3;
  const auto configs_of = [&](const Slice& slice) {
    return run_case(device_, builtin_, low_rank_types()[0],
                    LowRankCase{.rows = 5, .columns = 37, .rank = 6},
                    kernels::SpaceKind::kComprehensive, slice)
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

TEST_F(MatricesOnCpu, BuiltinLowRankKernelSupportsEveryMixOfTypes) {
  for (const kernels::Variant& variant :
       kernels::all_variants(kernels::operation("compose_low_rank"))) {
    const auto types = variant.operand_types();
    run(builtin_, {types.begin(), types.end()}, LowRankCase{.rows = 5, .columns = 37, .rank = 6});
  }
}

}  // namespace
}  // namespace dorajit::tests
