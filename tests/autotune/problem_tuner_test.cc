#include "autotune/problem_tuner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "tests/fakes/fake_device.h"
#include "tests/fakes/memory_artifact_store.h"

namespace dorajit::autotune {
namespace {

using cache::Verdict;
using tests::FakeDevice;
using tests::Misbehaviour;

class ProblemTuner : public testing::Test {
 protected:
  Result<TuneResult> tune() {
    return tune_problem(problem_, device_, kernels_, {.seconds = 5}, statistics_);
  }

  std::vector<kernels::Config> space() const {
    return kernels::config_space(problem_.variant, device_.info().traits, 1,
                                 kernels::SpaceKind::kSlim);
  }

  static const TrialResult& trial_of(const TuneResult& result, const kernels::Config& config) {
    return *std::ranges::find(result.trials, config, &TrialResult::config);
  }

  FakeDevice device_{2};
  Statistics statistics_;
  tests::MemoryArtifactStore artifacts_;
  launch::KernelCache kernels_{Settings{}, &artifacts_, statistics_};
  launch::Problem problem_ = launch::make_problem({.op = kernels::Op::kCompose, .types = {}},
                                                  kernels::DeviceKind::kCpu, 16, 300);
};

TEST_F(ProblemTuner, ChoosesTheFastestConfig) {
  device_.set_time_ns(space()[3], 0.5e6);
  const auto result = tune();
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->winner, space()[3]);
  EXPECT_EQ(result->winner_ns, 0.5e6);
  EXPECT_EQ(result->default_ns, 1e6);
  EXPECT_EQ(result->trials.size(), space().size());
  EXPECT_EQ(statistics_.tuned_problems, 1);
}

TEST_F(ProblemTuner, KeepsTheDefaultWhenNothingIsClearlyFaster) {
  device_.set_time_ns(space()[3], 0.995e6);
  const auto result = tune();
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->winner, space().front());
}

TEST_F(ProblemTuner, QuarantinesAFastConfigThatWritesWrongBits) {
  device_.set_time_ns(space()[3], 0.1e6);
  device_.plant(space()[3], Misbehaviour::kWrongBits);
  const auto result = tune();
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->winner, space().front());
  EXPECT_EQ(trial_of(*result, space()[3]).verdict, Verdict::kWrongBits);
}

TEST_F(ProblemTuner, GoesOnWithoutAConfigThatFailsToLaunch) {
  device_.plant(space()[3], Misbehaviour::kFailsToLaunch);
  device_.set_time_ns(space()[2], 0.5e6);
  const auto result = tune();
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->winner, space()[2]);
  EXPECT_EQ(trial_of(*result, space()[3]).verdict, Verdict::kFailedToLaunch);
}

TEST_F(ProblemTuner, FailsWhenTheDefaultItselfIsWrong) {
  device_.plant(space().front(), Misbehaviour::kWrongBits);
  const auto result = tune();
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, StatusCode::kInternal);
  EXPECT_NE(result.error().message.find(to_text(problem_)), std::string::npos);
}

TEST_F(ProblemTuner, StaysWithinItsTime) {
  const auto start = std::chrono::steady_clock::now();
  ASSERT_TRUE(tune());  // compiles
  const auto compiled = std::chrono::steady_clock::now();
  ASSERT_TRUE(tune_problem(problem_, device_, kernels_, {.seconds = 0}, statistics_));
  EXPECT_LT(std::chrono::steady_clock::now() - compiled,
            std::chrono::seconds(2) + (compiled - start));
}

}  // namespace
}  // namespace dorajit::autotune
