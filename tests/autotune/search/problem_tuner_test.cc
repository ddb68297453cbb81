#include "autotune/search/problem_tuner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <string>
#include <thread>

#include "autotune/search/candidates.h"
#include "autotune/search/verification.h"
#include "kernel_templates/sizes.h"
#include "tests/fakes/fake_device.h"
#include "tests/fakes/memory_artifact_store.h"

namespace dorajit::autotune {
namespace {

using cache::Verdict;
using tests::FakeDevice;
using tests::Misbehaviour;

class ProblemTuner : public testing::Test {
 protected:
  [[nodiscard]] TuningSession session() const {
    return {problem_, device_.info(), kernels::SpaceKind::kSlim, device_.clock()};
  }

  std::expected<TuneResult, TuneFailure> tune(const TuneLimits& limits = {.seconds = 5}) {
    return tune_problem(session(), device_, kernels_, limits, statistics_);
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
  launch::Problem problem_ =
      launch::make_problem({.operation = &kernels::operation("compose"), .types = {}},
                           kernels::DeviceKind::kCpu, {16, 300});
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

TEST_F(ProblemTuner, RowsLargerThanTheScratchMemoryAreNotTuned) {
  problem_.key[kernels::kCols] = std::int64_t{1} << 28;
  const auto refused = tune();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, StatusCode::kOutOfMemory);
  EXPECT_NE(refused.error().message.find("DORAJIT_SCRATCH_BYTES"), std::string::npos);
  EXPECT_LE(device_.max_allocated(), std::size_t{32} << 20);
}

TEST_F(ProblemTuner, LongRowsAreVerifiedOnFewerColumns) {
  problem_.key[kernels::kCols] = (std::int64_t{3} << 20) + 5;
  problem_.vector_width = 1;
  const auto verifier = Verifier::make(problem_, device_);
  ASSERT_TRUE(verifier) << verifier.error().message;
  EXPECT_LE(device_.max_allocated(), std::size_t{32} << 20);
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

TEST_F(ProblemTuner, ConfigThatFailsToLaunchIsSkipped) {
  device_.plant(space()[3], Misbehaviour::kFailsToLaunch);
  device_.set_time_ns(space()[2], 0.5e6);
  const auto result = tune();
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->winner, space()[2]);
  EXPECT_EQ(trial_of(*result, space()[3]).verdict, Verdict::kFailedToLaunch);
}

TEST_F(ProblemTuner, QuarantinesConfigsThatWriteOutOfBounds) {
  device_.plant(space()[1], Misbehaviour::kWritesBeforeOutput);
  device_.plant(space()[2], Misbehaviour::kWritesAfterOutput);
  device_.plant(space()[3], Misbehaviour::kModifiesInput);
  for (const std::size_t bad : {1U, 2U, 3U}) device_.set_time_ns(space()[bad], 0.1e6);
  device_.set_time_ns(space()[4], 0.5e6);
  const auto result = tune();
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->winner, space()[4]);
  for (const std::size_t bad : {1U, 2U, 3U}) {
    EXPECT_EQ(trial_of(*result, space()[bad]).verdict, Verdict::kOutOfBounds) << bad;
  }
}

// A config that behaves correctly for the launches before its timing.
TEST_F(ProblemTuner, RunnerUpWinsIfTheFastestFailsVerificationAfterTiming) {
  device_.set_time_ns(space()[3], 0.1e6);
  device_.set_time_ns(space()[2], 0.5e6);
  device_.plant_after(space()[3], Misbehaviour::kWritesAfterOutput, 20);
  const auto result = tune();
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->winner, space()[2]);
  EXPECT_EQ(trial_of(*result, space()[3]).verdict, Verdict::kOutOfBounds);
}

TEST_F(ProblemTuner, ConfigsThatSpillAreNotMeasured) {
  // Compiled one by one first, to map artifacts to configs.
  std::map<std::string, std::size_t> config_of;
  for (std::size_t i = 0; i < space().size(); ++i) {
    tests::MemoryArtifactStore one;
    launch::KernelCache builds(Settings{}, &one, statistics_);
    ASSERT_TRUE(builds.build(device_.info().target, problem_.variant,
                             kernels::compiled_part(space()[i], kernels::DeviceKind::kCpu)));
    for (const auto& [key, artifact] : one.all()) {
      config_of.try_emplace(key, i);
      artifacts_.insert(key, artifact);
    }
  }
  std::size_t spilling = 0;
  for (auto [key, artifact] : artifacts_.all()) {
    if (spilling == 0 && config_of[key] != 0) spilling = config_of[key];
    const bool spills = config_of[key] == 0 || config_of[key] == spilling;
    artifact.resources.spill_store_bytes = spills ? 8 : 0;
    artifacts_.insert(key, artifact);
  }
  ASSERT_NE(spilling, 0U);
  device_.set_time_ns(space()[spilling], 0.1e6);
  const auto result = tune();
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_NE(result->winner, space()[spilling]);
  EXPECT_EQ(trial_of(*result, space()[spilling]).verdict, Verdict::kSpills);
  EXPECT_EQ(trial_of(*result, space()[spilling]).samples, 0);
  EXPECT_EQ(result->trials.front().verdict, Verdict::kOk) << "the default is never pruned";
  EXPECT_GT(result->trials.front().samples, 0);
}

TEST_F(ProblemTuner, DefaultWithoutChallengersIsMeasuredAndRecorded) {
  const auto result = tune({.seconds = 5, .candidates = 1});
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->winner, space().front());
  EXPECT_EQ(result->winner_ns, 1e6);
}

TEST_F(ProblemTuner, FailsIfTheDefaultComputesWrongBits) {
  device_.plant(space().front(), Misbehaviour::kWrongBits);
  const auto result = tune();
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, StatusCode::kInternal);
  EXPECT_NE(result.error().message.find(to_text(problem_)), std::string::npos);
}

TEST_F(ProblemTuner, TuningEndsWithinItsTimeBudget) {
  for (const double seconds : {0., 5.}) {
    SCOPED_TRACE(seconds);
    const Moment start = device_.clock()();
    ASSERT_TRUE(tune({.seconds = seconds}));
    EXPECT_LT(device_.clock()() - start, Seconds(seconds + 1)) << "1 s is for the rounds it needs";
  }
}

TEST_F(ProblemTuner, KernelsThatWouldBeReadyAfterTheDeadlineAreNotBegun) {
  std::vector<Candidate> candidates;
  std::set<std::string> compiled;
  for (const kernels::Config& config : space()) {
    ASSERT_TRUE(kernels_.get(device_, problem_.variant, config));
    // One that shares its code with another takes no time.
    const auto part = kernels::compiled_part(config, kernels::DeviceKind::kCpu);
    if (compiled.insert(to_text(part)).second)
      candidates.push_back({.result = {.config = config}, .kernel = {}});
  }
  const std::size_t all = candidates.size();
  constexpr std::chrono::milliseconds kDelay{300};
  artifacts_.before_find = [&] { device_.spend(kDelay); };
  launch::KernelCache kernels{Settings{}, &artifacts_, statistics_};
  const TuningSession session = this->session();
  const Moment deadline = session.now() + kDelay * 3 / 2;
  const auto left_out = make_kernels(candidates, 0, session, device_, kernels, deadline, deadline);
  EXPECT_LE(candidates.size(), std::max(1U, std::thread::hardware_concurrency()))
      << "one for each thread";
  EXPECT_EQ(candidates.size() + left_out.size(), all);
}

}  // namespace
}  // namespace dorajit::autotune
