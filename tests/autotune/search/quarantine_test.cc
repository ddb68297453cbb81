#include <gtest/gtest.h>

#include "autotune/search/problem_tuner.h"
#include "autotune/search/tuning_session.h"
#include "runtime/base/hash.h"
#include "tests/fakes/fake_device.h"
#include "tests/fakes/memory_artifact_store.h"
#include "tests/variants.h"

namespace dorajit::autotune {
namespace {

using cache::Verdict;

class Quarantine : public testing::Test {
 protected:
  cache::Trial trial(std::int64_t cols, int block_size, Verdict verdict) const {
    cache::Trial trial;
    trial.problem =
        to_text(launch::make_problem(problem_.variant, kernels::DeviceKind::kCpu, {16, cols}));
    trial.device = "fake";
    trial.environment.templates =
        hash_hex(kernels::source_identity(problem_.variant, kernels::DeviceKind::kCpu));
    trial.config = trial.default_config = {{kernels::kColumnsOfProgram, block_size}};
    trial.verdict = verdict;
    return trial;
  }

  std::vector<kernels::Config> space() const {
    return kernels::config_space(problem_.variant, device_.info().traits, 1,
                                 kernels::SpaceKind::kSlim);
  }

  tests::FakeDevice device_{2};
  launch::Problem problem_ =
      launch::make_problem(tests::float_compose(), kernels::DeviceKind::kCpu, {16, 300});
};

TEST_F(Quarantine, ContainsConfigsThatEarlierTuningsOfTheVariantFoundBad) {
  const std::vector<cache::Trial> trials = {
      trial(300, 1, Verdict::kWrongBits),       trial(300, 2, Verdict::kOk),
      trial(999, 3, Verdict::kOutOfBounds),     trial(999, 4, Verdict::kFailedToLaunch),
      trial(999, 1, Verdict::kWrongBits),       trial(300, 5, Verdict::kSpills),
      trial(300, 6, Verdict::kFailedToCompile), trial(300, 7, Verdict::kDidNotFinish)};
  std::vector<int> blocks;
  for (const auto& config : quarantined_configs(
           trials, TuningSession(problem_, device_.info(), kernels::SpaceKind::kSlim))) {
    blocks.push_back(config[kernels::kColumnsOfProgram]);
  }
  EXPECT_EQ(blocks, (std::vector<int>{1, 3, 4, 7}));
}

TEST_F(Quarantine, TrialsOfOtherDevicesVariantsAndTemplatesAreIgnored) {
  std::vector<cache::Trial> trials(3, trial(300, 1, Verdict::kWrongBits));
  trials[0].device = "another";
  trials[1].environment.templates = "another";
  trials[2].problem = "another" + trials[2].problem;
  EXPECT_TRUE(quarantined_configs(
                  trials, TuningSession(problem_, device_.info(), kernels::SpaceKind::kSlim))
                  .empty());
}

TEST_F(Quarantine, AppliesToProblemsOfOtherShapes) {
  const auto store = cache::TuningStore::open("");
  const cache::Trial bad = trial(999, 3, Verdict::kOutOfBounds);
  cache::Winner winner;
  winner.problem = bad.problem;
  winner.device = bad.device;
  winner.environment = bad.environment;
  store->record(std::vector{bad}, winner);
  EXPECT_EQ(quarantined_configs(store->find_history("fake", {}).bad_trials,
                                TuningSession(problem_, device_.info(), kernels::SpaceKind::kSlim)),
            std::vector{bad.config});
}

TEST_F(Quarantine, QuarantinedConfigsAreNotLaunchedExceptTheDefault) {
  Statistics statistics;
  tests::MemoryArtifactStore artifacts;
  launch::KernelCache kernels(Settings{}, &artifacts, statistics);
  device_.set_time_ns(space()[3], 0.1e6);
  device_.plant(space()[3], tests::Misbehaviour::kCrashes);
  TuningSession session(problem_, device_.info(), kernels::SpaceKind::kSlim, device_.clock());
  session.quarantined = {space()[3], space().front()};
  const auto result = tune_problem(session, device_, kernels, {.seconds = 5}, statistics);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->winner, space().front());
  EXPECT_EQ(result->trials.size(), space().size() - 1);
}

TEST_F(Quarantine, LimitTakesTheFirstOfASlimSpaceAndSpreadOverAComprehensiveSpace) {
  std::vector<kernels::Config> space(10);
  for (int i = 0; i < 10; ++i)
    space[static_cast<std::size_t>(i)] = {{kernels::kColumnsOfProgram, i}};
  const auto blocks = [&](kernels::SpaceKind kind, std::vector<kernels::Config> left_out,
                          int most) {
    std::vector<int> chosen;
    for (const auto& config : choose_configs(space, kind, left_out, most)) {
      chosen.push_back(config[kernels::kColumnsOfProgram]);
    }
    return chosen;
  };
  using enum kernels::SpaceKind;
  EXPECT_EQ(blocks(kSlim, {}, 3), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(blocks(kComprehensive, {}, 3), (std::vector<int>{0, 3, 6}));
  EXPECT_EQ(blocks(kSlim, {space[0], space[2]}, 3), (std::vector<int>{0, 1, 3}));
  EXPECT_EQ(blocks(kComprehensive, {}, 0).size(), 10U);
  EXPECT_EQ(blocks(kComprehensive, {}, 99).size(), 10U);
}

}  // namespace
}  // namespace dorajit::autotune
