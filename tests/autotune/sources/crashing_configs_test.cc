// Configs that crash or hang their process.
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>

#include "autotune/search/problem_tuner.h"
#include "autotune/search/quarantine.h"
#include "autotune/sources/tuning_config_source.h"
#include "cache/records/launch_journal.h"
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
    return tune_problem(TuningSession(problem_, device_.info(), kernels::SpaceKind::kSlim), device_,
                        kernels_, {.seconds = 5, .journal = journal}, statistics_);
  }

  // Runs `work` in a child process.
  template <class Work>
  static pid_t fork_child(Work work) {
    const pid_t child = ::fork();
    if (child == 0) {
      work();
      ::_exit(0);
    }
    return child;
  }

  static void wait_for(pid_t child) { ::waitpid(child, nullptr, 0); }

  // Waits until a process has been in the launch of one config for a second.
  void wait_for_hang() const {
    using std::filesystem::file_time_type;
    for (;;) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      std::error_code error;
      for (const auto& file : std::filesystem::directory_iterator(directory_ + "/journal", error)) {
        const auto age = file_time_type::clock::now() - file.last_write_time(error);
        if (file.file_size(error) > 0 && age > std::chrono::seconds(1)) return;
      }
    }
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
  wait_for(fork_child([&] { (void)tune(LaunchJournal::open(directory_).release()); }));
  const auto journal = LaunchJournal::open(directory_);
  const auto result = tune(journal.get());
  ASSERT_TRUE(result) << result.error().message;
  expect_left_out(*result, space()[3]);
}

TEST_F(CrashingConfigTest, HangingConfigIsSkippedByTheNextProcess) {
  device_.set_time_ns(space()[2], 0.1e6);
  device_.plant(space()[2], Misbehaviour::kHangs);
  const pid_t child = fork_child([&] { (void)tune(LaunchJournal::open(directory_).release()); });
  wait_for_hang();
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  wait_for(child);
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
    return TuningConfigSource(settings, std::move(store), statistics_)
        .find(problem, device_, kernels_);
  };
  wait_for(fork_child([&] { find(problem_, cache::TuningStore::open("")); }));
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
  wait_for(fork_child([&] { (void)tune(LaunchJournal::open(directory_).release()); }));
  EXPECT_EQ(LaunchJournal::open(directory_)->crashed_configs(scope()), std::vector{space()[1]});
}

}  // namespace
}  // namespace dorajit::autotune
