// Configs that crash or hang their process.
#include <gtest/gtest.h>

#include <algorithm>

#include "autotune/search/problem_tuner.h"
#include "cache/records/launch_journal.h"
#include "tests/autotune/sources/source_fixture.h"
#include "tests/fakes/child_process.h"

namespace dorajit::autotune {
namespace {

using cache::LaunchJournal;
using tests::Misbehaviour;

class CrashingConfigTest : public SourceTest {
 protected:
  [[nodiscard]] const std::string& folder() const { return directory_.path(); }
  std::string scope() const { return session().scope; }

  std::expected<TuneResult, TuneFailure> tune(LaunchJournal* journal) {
    return tune_problem(session(), device_, kernels_, {.seconds = 5, .journal = journal},
                        statistics_);
  }

  // Tunes in a process that one of the configs ends.
  void tune_in_child() {
    cache::run_in_child([&] {
      (void)tune(LaunchJournal::open(folder()).release());
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
  const auto journal = LaunchJournal::open(folder());
  const auto result = tune(journal.get());
  ASSERT_TRUE(result) << result.error().message;
  expect_left_out(*result, space()[3]);
}

TEST_F(CrashingConfigTest, HangingConfigIsSkippedByTheNextProcess) {
  device_.set_time_ns(space()[2], 0.1e6);
  device_.plant(space()[2], Misbehaviour::kHangs);
  tune_in_child();
  const auto journal = LaunchJournal::open(folder());
  const auto result = tune(journal.get());
  ASSERT_TRUE(result) << result.error().message;
  expect_left_out(*result, space()[2]);
  journal->forget(scope(), std::vector{space()[2]});
  EXPECT_TRUE(journal->crashed_configs(scope()).empty());
}

TEST_F(CrashingConfigTest, NextProcessRecordsTheConfigAndRemovesItsJournalEntry) {
  settings_.tuning_dir = folder();
  device_.plant(space()[2], Misbehaviour::kCrashes);
  cache::run_in_child([&] {
    find();
    return 0;
  });
  EXPECT_EQ(find().origin, launch::ConfigOrigin::kTuned);
  EXPECT_TRUE(LaunchJournal::open(folder())->crashed_configs(scope()).empty());
  EXPECT_EQ(quarantined_configs(store_->find_history("fake", {}).bad_trials, session()),
            std::vector{space()[2]});
  EXPECT_EQ(find(problem_of(400)).origin, launch::ConfigOrigin::kTuned) << "from the database only";
}

// A config that works on the operands of verification may hang on the operands of timing.
TEST_F(CrashingConfigTest, FirstLaunchOnTimedOperandsIsEnteredInTheJournal) {
  device_.plant_after(space()[1], Misbehaviour::kCrashes, 3);
  tune_in_child();
  EXPECT_EQ(LaunchJournal::open(folder())->crashed_configs(scope()), std::vector{space()[1]});
}

}  // namespace
}  // namespace dorajit::autotune
