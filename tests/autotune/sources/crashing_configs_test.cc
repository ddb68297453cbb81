// Configs that crash or hang their process.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>

#include "autotune/search/problem_tuner.h"
#include "autotune/search/tuning_session.h"
#include "autotune/sources/tuning_config_source.h"
#include "cache/records/launch_journal.h"
#include "tests/fakes/child_process.h"
#include "tests/fakes/fake_device.h"
#include "tests/fakes/memory_artifact_store.h"
#include "tests/variants.h"

namespace dorajit::autotune {
namespace {

using cache::LaunchJournal;
using tests::Misbehaviour;

class CrashingConfigTest : public testing::Test {
 protected:
  CrashingConfigTest() {
    char name[] = "/tmp/dorajit-journal-XXXXXX";
    directory_ = ::mkdtemp(name);
  }
  ~CrashingConfigTest() override { std::filesystem::remove_all(directory_); }

  std::vector<kernels::Config> space() const {
    return kernels::config_space(problem_.variant, device_.info().traits, 1,
                                 kernels::SpaceKind::kSlim);
  }
  std::string scope() const {
    return TuningSession(problem_, device_.info(), kernels::SpaceKind::kSlim).scope;
  }

  std::expected<TuneResult, TuneFailure> tune(LaunchJournal* journal) {
    const TuningSession session(problem_, device_.info(), kernels::SpaceKind::kSlim,
                                device_.clock());
    return tune_problem(session, device_, kernels_, {.seconds = 5, .journal = journal},
                        statistics_);
  }

  // Tunes in a process that one of the configs ends.
  void tune_in_child() {
    cache::run_in_child([&] {
      (void)tune(LaunchJournal::open(directory_).release());
      return 0;
    });
  }

  void expect_left_out(const TuneResult& result, const kernels::Config& config) const {
    EXPECT_NE(result.winner, config);
    const auto trial = std::ranges::find(result.trials, config, &TrialResult::config);
    ASSERT_NE(trial, result.trials.end());
    EXPECT_EQ(trial->verdict, cache::Verdict::kDidNotFinish);
    EXPECT_EQ(result.trials.size(), space().size());
  }

  std::string directory_;
  tests::FakeDevice device_{1};
  Statistics statistics_;
  tests::MemoryArtifactStore artifacts_;
  launch::KernelCache kernels_{Settings{}, &artifacts_, statistics_};
  launch::Problem problem_ =
      launch::make_problem(tests::float_compose(), kernels::DeviceKind::kCpu, {16, 300});
};

TEST_F(CrashingConfigTest, WithoutACacheFolderTuningSucceeds) {
  device_.set_time_ns(space()[1], 0.5e6);
  const auto result = tune(LaunchJournal::open("").get());
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->winner, space()[1]);
}

TEST_F(CrashingConfigTest, CrashingConfigIsSkippedByTheNextProcess) {
  device_.set_time_ns(space()[3], 0.1e6);
  device_.plant(space()[3], Misbehaviour::kCrashes);
  tune_in_child();
  const auto journal = LaunchJournal::open(directory_);
  const auto result = tune(journal.get());
  ASSERT_TRUE(result) << result.error().message;
  expect_left_out(*result, space()[3]);
}

TEST_F(CrashingConfigTest, HangingConfigIsSkippedByTheNextProcess) {
  device_.set_time_ns(space()[2], 0.1e6);
  device_.plant(space()[2], Misbehaviour::kHangs);
  tune_in_child();
  const auto journal = LaunchJournal::open(directory_);
  const auto result = tune(journal.get());
  ASSERT_TRUE(result) << result.error().message;
  expect_left_out(*result, space()[2]);
  journal->forget(scope(), std::vector{space()[2]});
  EXPECT_TRUE(journal->crashed_configs(scope()).empty());
}

TEST_F(CrashingConfigTest, NextProcessRecordsTheConfigAndRemovesItsJournalEntry) {
  Settings settings;
  settings.tuning_dir = directory_;
  device_.plant(space()[2], Misbehaviour::kCrashes);
  const auto find = [&](const launch::Problem& problem, std::shared_ptr<cache::TuningStore> store) {
    return TuningConfigSource(settings, std::move(store), statistics_, nullptr, device_.clock())
        .find(problem, device_, kernels_);
  };
  cache::run_in_child([&] {
    find(problem_, cache::TuningStore::open(""));
    return 0;
  });
  const std::shared_ptr<cache::TuningStore> store = cache::TuningStore::open("");
  EXPECT_EQ(find(problem_, store).origin, launch::ConfigOrigin::kTuned);
  EXPECT_TRUE(LaunchJournal::open(directory_)->crashed_configs(scope()).empty());
  EXPECT_EQ(quarantined_configs(store->find_history("fake", {}).bad_trials,
                                TuningSession(problem_, device_.info(), kernels::SpaceKind::kSlim)),
            std::vector{space()[2]});
  const auto other =
      launch::make_problem(tests::float_compose(), kernels::DeviceKind::kCpu, {16, 400});
  EXPECT_EQ(find(other, store).origin, launch::ConfigOrigin::kTuned) << "from the database only";
}

// A config that works on the operands of verification may hang on the operands of timing.
TEST_F(CrashingConfigTest, FirstLaunchOnTimedOperandsIsEnteredInTheJournal) {
  device_.plant_after(space()[1], Misbehaviour::kCrashes, 3);
  tune_in_child();
  EXPECT_EQ(LaunchJournal::open(directory_)->crashed_configs(scope()), std::vector{space()[1]});
}

}  // namespace
}  // namespace dorajit::autotune
