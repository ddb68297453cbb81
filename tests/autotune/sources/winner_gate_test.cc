// Winners that this device did not measure: invalid ones, and ones that misbehave on it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <utility>

#include "kernel_templates/config.h"
#include "kernel_templates/templates/streaming_configs.h"
#include "tests/autotune/sources/source_fixture.h"
#include "tests/fakes/captured_log.h"
#include "tests/fakes/child_process.h"

namespace dorajit::autotune {
namespace {

using launch::ConfigOrigin;
using testing::HasSubstr;
using tests::Misbehaviour;

class WinnerGateTest : public SourceTest {
 protected:
  WinnerGateTest() {
    settings_.tune_seconds = 0.5;
    settings_.tune_policy = TunePolicy::kOff;
    settings_.tuning_dir = directory_.file("user");
    ship(winner_of(problem_, config_));
  }

  using SourceTest::find;
  launch::ConfigAnswer find(launch::KernelCache& kernels) {
    return SourceTest::find(problem_, kernels);
  }

  // The number of reads from the device in one find() of a verified winner.
  int downloads_of_find() { return downloads_of_find(kernels_); }
  int downloads_of_find(launch::KernelCache& kernels) {
    const int before = device_.downloads();
    find(kernels);
    return device_.downloads() - before;
  }

  const std::vector<kernels::Config> space_ = space();
  const kernels::Config config_ = space_[1];
};

TEST_F(WinnerGateTest, InvalidWinnerIsNotUsedAndIsLogged) {
  kernels::Config invalid = config_;
  invalid.set(kernels::kUnroll, 512);
  invalid.set(kernels::kRowsOfProgram, 512);
  for (const bool is_shipped : {false, true}) {
    SCOPED_TRACE(is_shipped);
    if (is_shipped) {
      ship(winner_of(problem_, invalid));
    } else {
      ship(winner_of(problem_, config_));
      store_->record({}, winner_of(problem_, invalid));
    }
    cache::CapturedLog log;
    const auto answer = find();
    EXPECT_EQ(answer.config, is_shipped ? space_.front() : config_);
    EXPECT_EQ(log.count(to_text(invalid)), 1);
    EXPECT_THAT(explain()[is_shipped ? 1 : 0].remark, HasSubstr("is invalid"));
    std::filesystem::remove_all(settings_.tuning_dir);
  }
}

TEST_F(WinnerGateTest, WinnerWithTooWideVectorsIsNotUsed) {
  device_.pose_as_gpu();
  const launch::Problem aligned =
      launch::make_problem(tests::float_compose(), kernels::DeviceKind::kCuda, {16, 300});
  problem_ = aligned;
  problem_.vector_width = 1;
  const auto wide =
      kernels::default_config(tests::float_compose(), device_.info().traits, aligned.vector_width);
  ASSERT_GT(wide[kernels::kVectorWidth], 1);
  ship(winner_of(problem_, wide));
  EXPECT_EQ(explain()[1].answers, false);
  EXPECT_THAT(explain()[1].remark, HasSubstr("do not fit the data"));
  ship(winner_of(aligned, wide));
  EXPECT_EQ(explain().back().origin, ConfigOrigin::kDefault)
      << "it is not used as a neighbour either";
}

TEST_F(WinnerGateTest, ShippedWinnerIsVerifiedOnce) {
  EXPECT_GT(downloads_of_find(), 0);
  EXPECT_EQ(downloads_of_find(), 0) << "another process does not verify it again";
  EXPECT_EQ(find().origin, ConfigOrigin::kShippedDatabase);
  EXPECT_EQ(find().config, config_);
  EXPECT_EQ(statistics_.tuned_problems, 0);
  EXPECT_EQ(store_->trial_count(), 0);
}

TEST_F(WinnerGateTest, WinnerReplacedByABuiltinKernelIsVerifiedLater) {
  Settings without_compiler;
  without_compiler.host_compiler = "none";
  launch::KernelCache builtin(without_compiler, nullptr, statistics_);
  for (int time = 0; time < 2; ++time) {
    EXPECT_EQ(find(builtin).origin, ConfigOrigin::kShippedDatabase);
    EXPECT_EQ(downloads_of_find(builtin), 0);
  }
  EXPECT_GT(downloads_of_find(), 0);
  EXPECT_EQ(downloads_of_find(), 0);
}

TEST_F(WinnerGateTest, WinnerIsVerifiedAgainForEachCompilerAndDriver) {
  find();
  const std::string file = directory_.file("other-c++");
  cache::write_file(file,
                    "#!/bin/sh\n"
                    "[ \"$1\" = --version ] && echo other 1.0 && exit\n"
                    "exec c++ \"$@\"\n");
  std::filesystem::permissions(file, std::filesystem::perms::owner_all);
  Settings settings;
  settings.host_compiler = file;
  launch::KernelCache other(settings, nullptr, statistics_);
  EXPECT_GT(downloads_of_find(other), 0);
  EXPECT_EQ(downloads_of_find(other), 0);
  EXPECT_EQ(downloads_of_find(), 0);
  device_.set_driver("another");
  EXPECT_GT(downloads_of_find(), 0);
  EXPECT_EQ(downloads_of_find(), 0);
}

TEST_F(WinnerGateTest, WinnerTunedOnThisMachineIsNotVerifiedAgain) {
  settings_.tune_policy = TunePolicy::kFirstUse;
  store_ = cache::TuningStore::open(settings_.tuning_dir);
  device_.set_time_ns(config_, 0.5e6);
  EXPECT_EQ(find().origin, ConfigOrigin::kTuned);
  EXPECT_EQ(downloads_of_find(), 0);
  EXPECT_EQ(find().config, config_);
  settings_.tune_policy = TunePolicy::kOff;
  problem_ = problem_of(600);
  EXPECT_EQ(downloads_of_find(), 0) << "and not as a neighbour either";
  EXPECT_EQ(find().origin, ConfigOrigin::kNearestShape);
}

TEST_F(WinnerGateTest, WinnerWithWrongBitsIsQuarantined) {
  device_.plant(config_, Misbehaviour::kWrongBits);
  cache::CapturedLog log;
  EXPECT_EQ(find().config, space_.front());
  EXPECT_EQ(log.count("comes from a database and is not used: it is quarantined: wrong_bits"), 1);
  const auto bad = store_->find_history("fake", {}).bad_trials;
  ASSERT_EQ(bad.size(), 1U);
  EXPECT_EQ(bad[0].config, config_);
  EXPECT_EQ(bad[0].verdict, cache::Verdict::kWrongBits);
  EXPECT_EQ(downloads_of_find(), 0) << "the next process knows the verdict";
  settings_.tune_policy = TunePolicy::kFirstUse;
  EXPECT_EQ(find().origin, ConfigOrigin::kTuned);
}

TEST_F(WinnerGateTest, DatabaseIsNotReadAgainWhenAWinnerIsRejected) {
  device_.plant(config_, Misbehaviour::kWrongBits);
  const cache::Winner tuned = winner_of(problem_, space_[2]);
  const cache::Trial trial{.problem = tuned.problem,
                           .device = tuned.device,
                           .environment = tuned.environment,
                           .config = tuned.config,
                           .default_config = tuned.default_config,
                           .median_ns = tuned.median_ns,
                           .samples = 24,
                           .created_unix_s = tuned.created_unix_s,
                           .host = "host"};
  // By another process, while the shipped winner is verified.
  artifacts_.before_find = [&] { store_->record({&trial, 1}, tuned); };
  EXPECT_NE(find().origin, ConfigOrigin::kUserDatabase);
  EXPECT_EQ(find().origin, ConfigOrigin::kUserDatabase) << "by the next lookup";
}

TEST_F(WinnerGateTest, ShippedNeighbourIsVerifiedForTheProblem) {
  device_.plant(config_, Misbehaviour::kWritesAfterOutput);
  problem_ = problem_of(600);
  EXPECT_EQ(find().origin, ConfigOrigin::kDefault);
  ASSERT_EQ(store_->find_history("fake", {}).bad_trials.size(), 1U);
  EXPECT_EQ(store_->find_history("fake", {}).bad_trials[0].verdict, cache::Verdict::kOutOfBounds);
}

TEST_F(WinnerGateTest, WinnerThatCrashesTheProcessIsTriedOnce) {
  device_.plant(config_, Misbehaviour::kCrashes);
  EXPECT_EQ(cache::run_in_child([&] {
              find();
              return 0;
            }),
            139);
  EXPECT_EQ(find().config, space_.front());
  ASSERT_EQ(store_->find_history("fake", {}).bad_trials.size(), 1U);
  EXPECT_EQ(store_->find_history("fake", {}).bad_trials[0].verdict, cache::Verdict::kDidNotFinish);
}

TEST_F(WinnerGateTest, WithoutTimeOnlyVerifiedWinnersAreUsed) {
  settings_.tune_seconds = 0;
  EXPECT_EQ(downloads_of_find(), 0);
  EXPECT_EQ(find().config, space_.front());
  settings_.tune_seconds = 1e-9;
  EXPECT_EQ(find().config, space_.front());
  EXPECT_TRUE(store_->find_history("fake", {}).bad_trials.empty());
  settings_.tune_seconds = 2;
  EXPECT_EQ(find().config, config_);
  settings_.tune_seconds = 0;
  EXPECT_EQ(find().config, config_);
}

TEST_F(WinnerGateTest, AllWinnersShareOneTimeBudget) {
  const std::string folder = directory_.file("many");
  const auto many = cache::TuningStore::open(folder);
  // All configs except the default, which needs no verification.
  std::set<std::string> compiled = {
      to_text(kernels::compiled_part(space_.front(), kernels::DeviceKind::kCpu))};
  std::int64_t cols = 310;
  for (const kernels::Config& config : kernels::config_space(
           problem_.variant, device_.info().traits, 1, kernels::SpaceKind::kComprehensive)) {
    if (!compiled.insert(to_text(kernels::compiled_part(config, kernels::DeviceKind::kCpu))).second)
      continue;
    many->record({}, winner_of(problem_of(cols++), config));
  }
  ASSERT_GE(compiled.size(), 15U);
  store_ = cache::TuningStore::open(settings_.tuning_dir, {.overlays = {folder + "/tuning.db"}});
  settings_.tune_seconds = 1e-9;
  EXPECT_EQ(find().origin, ConfigOrigin::kDefault);
  EXPECT_EQ(statistics_.compilations, 1);
}

TEST_F(WinnerGateTest, WinnerThatTakesLongerToCompileThanTheBudgetIsVerified) {
  tests::MemoryArtifactStore slow;
  slow.before_find = [&] { device_.spend(std::chrono::seconds(1)); };
  launch::KernelCache kernels(Settings{}, &slow, statistics_);
  EXPECT_EQ(find(kernels).config, config_);
  EXPECT_GE(statistics_.compilations, 1);
  EXPECT_EQ(downloads_of_find(kernels), 0) << "it is verified only once";
}

TEST_F(WinnerGateTest, VerifyingAndTuningShareOneTimeBudget) {
  settings_.tune_policy = TunePolicy::kFirstUse;
  settings_.tune_seconds = 1;
  device_.set_driver("a newer one");  // so the winner is stale and is used only until it is tuned
  ASSERT_TRUE(kernels_.get(device_, problem_.variant, config_));
  device_.set_time_ns(config_, 500e6);
  EXPECT_EQ(find().origin, ConfigOrigin::kShippedDatabase);
  EXPECT_EQ(statistics_.tuned_problems, 0) << "verifying took all of the time";
  device_.set_time_ns(config_, 0.5e6);
  EXPECT_EQ(find().origin, ConfigOrigin::kTuned) << "by a process that does not need to verify";
}

TEST_F(WinnerGateTest, WinnerThatDoesNotCompileIsNotUsed) {
  device_.pose_as_gpu(9, 0);
  ship(winner_of(problem_, space()[1]));
  EXPECT_TRUE(explain()[1].answers);
  Settings without_nvrtc;
  without_nvrtc.nvrtc_path = "/nowhere";
  launch::KernelCache kernels(without_nvrtc, nullptr, statistics_);
  EXPECT_EQ(find(kernels).origin, ConfigOrigin::kDefault);
}

}  // namespace
}  // namespace dorajit::autotune
