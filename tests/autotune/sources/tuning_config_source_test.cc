#include "autotune/sources/tuning_config_source.h"

#include <gtest/gtest.h>

#include <format>
#include <string>
#include <thread>
#include <utility>

#include "cache/records/winner_choice.h"
#include "kernel_templates/templates/streaming_configs.h"
#include "tests/autotune/sources/source_fixture.h"

namespace dorajit::autotune {
namespace {

using launch::ConfigOrigin;

class TuningConfigSourceTest : public SourceTest {
 protected:
  TuningConfigSourceTest() { settings_.tune_seconds = 0.5; }
};

TEST_F(TuningConfigSourceTest, TunesOnceAndThenAnswersFromTheDatabase) {
  device_.set_time_ns(space()[1], 0.5e6);
  auto source = make_source();
  const auto first = source.find(problem_, device_, kernels_);
  EXPECT_EQ(first.origin, ConfigOrigin::kTuned);
  EXPECT_EQ(first.config, space()[1]);
  EXPECT_EQ(first.trials, static_cast<int>(space().size()));
  const auto second = find();
  EXPECT_EQ(second.origin, ConfigOrigin::kUserDatabase);
  EXPECT_EQ(second.config, space()[1]);
  EXPECT_EQ(second.median_ns, 0.5e6);
  EXPECT_EQ(statistics_.tuned_problems, 1);
  EXPECT_EQ(store_->trials("fake", to_text(problem_)).size(), space().size());
}

TEST_F(TuningConfigSourceTest, PolicyOffAnswersWithTheDefaultAndMeasuresNothing) {
  settings_.tune_policy = TunePolicy::kOff;
  const auto answer = find();
  EXPECT_EQ(answer.origin, ConfigOrigin::kDefault);
  EXPECT_EQ(answer.config, space().front());
  EXPECT_EQ(statistics_.trials, 0);
}

TEST_F(TuningConfigSourceTest, PolicyOffAnswersWithKnownWinners) {
  device_.set_time_ns(space()[1], 0.5e6);
  find();
  settings_.tune_policy = TunePolicy::kOff;
  EXPECT_EQ(find().config, space()[1]);
}

TEST_F(TuningConfigSourceTest, PinnedConfigAnswersBeforeWinnersAndIsNotTuned) {
  store_ = cache::TuningStore::open(directory_.file("pinned"));
  device_.set_time_ns(space()[1], 0.5e6);
  find();
  const cache::Pin pin{.device = device_.info().fingerprint,
                       .problem = to_text(problem_),
                       .config = space()[2],
                       .compiler = {},
                       .artifact = {},
                       .code = {}};
  ASSERT_TRUE(store_->pins().add(pin));
  const auto answer = find();
  EXPECT_EQ(answer.origin, ConfigOrigin::kPinned);
  EXPECT_EQ(answer.config, space()[2]);
  const auto looks = explain();
  ASSERT_EQ(looks.size(), 1U);
  EXPECT_EQ(looks[0].pinned, space()[2]);
  EXPECT_EQ(statistics_.tuned_problems, 1);
  ASSERT_TRUE(store_->pins().remove(pin.device, pin.problem));
  EXPECT_EQ(find().origin, ConfigOrigin::kUserDatabase);
}

TEST_F(TuningConfigSourceTest, WinnerOfAnotherDriverIsUsedIfTuningIsOff) {
  auto older = winner_of(problem_, space()[2]);
  older.environment.driver = "an older one";
  store_->record({}, older);
  settings_.tune_policy = TunePolicy::kOff;
  const auto answer = find();
  EXPECT_EQ(answer.origin, ConfigOrigin::kUserDatabase);
  EXPECT_EQ(answer.config, space()[2]);
  EXPECT_EQ(statistics_.tuned_problems, 0);
  const auto looks = explain();
  ASSERT_EQ(looks.size(), 2U);
  EXPECT_EQ(&best_of(looks), &looks[0]);
  EXPECT_TRUE(looks[0].is_stale);
  EXPECT_NE(looks[0].remark.find("an older one"), std::string::npos);
}

TEST_F(TuningConfigSourceTest, WinnerOfAnotherDriverIsTunedAgainAndUsedIfThatFails) {
  auto older = winner_of(problem_, space()[2]);
  older.environment.driver = "an older one";
  store_->record({}, older);
  device_.plant(space().front(), tests::Misbehaviour::kFailsToLaunch);
  EXPECT_EQ(find().config, space()[2]);
  device_.plant(space().front(), tests::Misbehaviour::kNone);
  EXPECT_EQ(find().origin, ConfigOrigin::kTuned);
  EXPECT_EQ(find().origin, ConfigOrigin::kUserDatabase);
  EXPECT_EQ(statistics_.tuned_problems, 1);
}

TEST_F(TuningConfigSourceTest, EachEnvironmentOnACacheKeepsItsWinner) {
  for (const std::string folder : {"", "kept"}) {
    SCOPED_TRACE(folder);
    statistics_.tuned_problems = 0;
    const std::string path = folder.empty() ? folder : directory_.file(folder);
    store_ = cache::TuningStore::open(path);
    const std::pair<const char*, kernels::Config> environments[] = {{"13.0", space()[1]},
                                                                    {"13.2", space()[2]}};
    for (const bool is_tuned : {false, true}) {
      for (const auto& [driver, fastest] : environments) {
        if (!folder.empty()) store_ = cache::TuningStore::open(path);
        device_.set_driver(driver);
        device_.set_time_ns(fastest, 0.5e6);
        const auto answer = find();
        device_.set_time_ns(fastest, tests::FakeDevice::kOrdinaryTimeNs);
        EXPECT_EQ(answer.origin, is_tuned ? ConfigOrigin::kUserDatabase : ConfigOrigin::kTuned);
        EXPECT_EQ(answer.config, fastest) << driver;
      }
    }
    EXPECT_EQ(statistics_.tuned_problems, 2);
  }
}

TEST_F(TuningConfigSourceTest, WinnerOfOtherKernelsDoesNotHideAnOlderOneOfThese) {
  device_.set_time_ns(space()[1], 0.5e6);
  find();
  auto other = winner_of(problem_, space()[2]);
  other.environment.templates = "other kernels";
  store_->record({}, other);
  EXPECT_EQ(find().config, space()[1]);
  EXPECT_EQ(statistics_.tuned_problems, 1);
}

TEST_F(TuningConfigSourceTest, ShippedWinnerIsFoundOnADeviceOfTheModelWithOtherMemory) {
  auto shipped = winner_of(problem_, space()[2]);
  shipped.device = "fake/40 GiB";
  ship(shipped);
  settings_.tune_policy = TunePolicy::kOff;
  for (const auto& [fingerprint, origin] :
       {std::pair("fake/39 GiB", ConfigOrigin::kShippedDatabase),
        std::pair("fake/45 GiB", ConfigOrigin::kShippedDatabase),
        std::pair("fake/80 GiB", ConfigOrigin::kNearestDevice)}) {
    device_.set_fingerprint(fingerprint);
    const auto answer = find();
    EXPECT_EQ(answer.origin, origin) << fingerprint;
    EXPECT_EQ(answer.config, space()[2]) << fingerprint;
  }
}

TEST_F(TuningConfigSourceTest, WinnerOfTheDeviceItselfIsPreferredToOneOfItsModel) {
  store_ = cache::TuningStore::open(directory_.file("models"));
  for (const int i : {0, 1, 2}) {
    auto winner = winner_of(problem_, space()[static_cast<std::size_t>(i)]);
    winner.device = std::format("fake/{} GiB", 39 + i);
    store_->record({}, winner);
  }
  store_ = cache::TuningStore::open(directory_.file("models"));
  for (const int i : {0, 1, 2}) {
    device_.set_fingerprint(std::format("fake/{} GiB", 39 + i));
    EXPECT_EQ(find().config, space()[static_cast<std::size_t>(i)]);
  }
}

TEST_F(TuningConfigSourceTest, ConfigThatMisbehavedOnADeviceOfTheModelIsNotTried) {
  device_.set_fingerprint("fake/40 GiB");
  device_.plant(space()[1], tests::Misbehaviour::kWrongBits);
  find();
  device_.set_fingerprint("fake/39 GiB");
  const auto other = problem_of(400);
  find(other);
  for (const auto& trial : store_->trials("fake/39 GiB", to_text(other))) {
    EXPECT_NE(trial.config, space()[1]);
  }
}

TEST_F(TuningConfigSourceTest, WithoutTuningAnswersWithTheNearestShapeThenTheNearestDevice) {
  settings_.tune_policy = TunePolicy::kOff;
  auto elsewhere = winner_of(problem_, space()[1]);
  elsewhere.device = "fake/of a neighbour";
  store_->record({}, elsewhere);
  auto answer = find();
  EXPECT_EQ(answer.origin, ConfigOrigin::kNearestDevice);
  EXPECT_EQ(answer.config, space()[1]);
  EXPECT_EQ(answer.median_ns, 0) << "the time of another device does not apply";

  const auto larger = problem_of(600);
  store_->record({}, winner_of(larger, space()[2]));
  answer = find();
  EXPECT_EQ(answer.origin, ConfigOrigin::kNearestShape);
  EXPECT_EQ(answer.config, space()[2]);

  const auto looks = explain();
  ASSERT_EQ(looks.size(), 3U);
  EXPECT_FALSE(looks[0].answers);
  EXPECT_EQ(looks[0].remark, "it was never tuned");
  EXPECT_EQ(looks[1].remark, "it has no winner");
  EXPECT_EQ(looks[2].winner->problem, to_text(larger));
}

TEST_F(TuningConfigSourceTest, ExplainGivesTheReasonWhyEachSourceHasNoAnswer) {
  const auto looks = explain();
  ASSERT_EQ(looks.size(), 5U);
  EXPECT_EQ(looks.back().origin, ConfigOrigin::kDefault);
  EXPECT_TRUE(looks.back().answers);
  for (const LookupResult& look : looks) {
    EXPECT_EQ(look.answers, look.origin == ConfigOrigin::kDefault);
    EXPECT_EQ(look.remark.empty(), look.answers);
  }
  EXPECT_EQ(statistics_.trials, 0);
}

TEST_F(TuningConfigSourceTest, WinnerOfOtherTemplatesIsNotUsed) {
  auto other = winner_of(problem_, space()[2]);
  other.environment.templates = "other kernels";
  store_->record({}, other);
  EXPECT_EQ(find().origin, ConfigOrigin::kTuned);
}

TEST_F(TuningConfigSourceTest, ShippedWinnerIsUsedIfTheUserHasNone) {
  ship(winner_of(problem_, space()[2]));
  const auto answer = find();
  EXPECT_EQ(answer.origin, ConfigOrigin::kShippedDatabase);
  EXPECT_EQ(answer.config, space()[2]);
  EXPECT_EQ(statistics_.tuned_problems, 0);
}

TEST_F(TuningConfigSourceTest, ShippedWinnerIsPreferredToAStaleOneAndToOneOfOtherKernels) {
  ship(winner_of(problem_, space()[2]));
  auto older = winner_of(problem_, space()[1]);
  older.environment.driver = "an older one";
  store_->record({}, older);
  EXPECT_EQ(find().config, space()[2]);
  older.environment.templates = "other kernels";
  store_->record({}, older);
  EXPECT_EQ(find().config, space()[2]);
  store_->record({}, winner_of(problem_, space()[1]));
  EXPECT_EQ(find().origin, ConfigOrigin::kUserDatabase);
}

TEST_F(TuningConfigSourceTest, ShippedWinnerThatMisbehavedOnThisDeviceIsNotUsed) {
  const auto other = problem_of(400);
  ship(winner_of(problem_, space()[2]));
  device_.plant(space()[2], tests::Misbehaviour::kWrongBits);
  find(other);
  settings_.tune_policy = TunePolicy::kOff;
  const auto looks = explain();
  EXPECT_FALSE(looks[1].answers);
  EXPECT_EQ(looks[1].remark, "its config has misbehaved on this device");
  EXPECT_NE(find().config, space()[2]);
}

TEST_F(TuningConfigSourceTest, ShippedNeighbourIsUsedIfTuningIsOff) {
  settings_.tune_policy = TunePolicy::kOff;
  const auto larger = problem_of(600);
  ship(winner_of(larger, space()[2]));
  const auto answer = find();
  EXPECT_EQ(answer.origin, ConfigOrigin::kNearestShape);
  EXPECT_EQ(answer.config, space()[2]);
}

TEST_F(TuningConfigSourceTest, BrokenDefaultIsReportedByTheCallNotByTuning) {
  device_.plant(space().front(), tests::Misbehaviour::kFailsToLaunch);
  const auto answer = find();
  EXPECT_EQ(answer.origin, ConfigOrigin::kDefault);
  EXPECT_EQ(answer.config, space().front());
}

TEST_F(TuningConfigSourceTest, BadConfigIsNotTriedAgainForAnotherShape) {
  device_.plant(space()[1], tests::Misbehaviour::kWrongBits);
  find();
  const auto other = problem_of(400);
  EXPECT_EQ(find(other).origin, ConfigOrigin::kTuned);
  for (const auto& trial : store_->trials("fake", to_text(other))) {
    EXPECT_NE(trial.config, space()[1]);
  }
}

TEST_F(TuningConfigSourceTest, OnlyTheConfigThatBreaksTheDeviceIsQuarantined) {
  device_.plant(space()[1], tests::Misbehaviour::kBreaksDevice);
  EXPECT_EQ(find().origin, ConfigOrigin::kDefault);
  const auto bad = store_->find_history("fake", {}).bad_trials;
  ASSERT_EQ(bad.size(), 1U);
  EXPECT_EQ(bad[0].config, space()[1]);
  EXPECT_EQ(bad[0].verdict, cache::Verdict::kFailedToLaunch);
}

TEST_F(TuningConfigSourceTest, WinnerFoundBadAtAnotherShapeIsNotUsedAnyMore) {
  device_.set_time_ns(space()[1], 0.5e6);
  EXPECT_EQ(find().config, space()[1]);
  device_.plant(space()[1], tests::Misbehaviour::kWrongBits);
  const auto other = problem_of(400);
  find(other);
  EXPECT_NE(find().config, space()[1]);
}

TEST_F(TuningConfigSourceTest, RecordedWinnerEqualsTheOneDerivedFromTrials) {
  device_.set_time_ns(space()[1], 0.5e6);
  device_.set_time_ns(space()[2], 0.49e6);
  find();
  const auto tuned = store_->find_winner("fake", to_text(problem_));
  ASSERT_TRUE(tuned);
  const auto derived = cache::choose_winner(store_->trials("fake", to_text(problem_)));
  ASSERT_TRUE(derived);
  EXPECT_EQ(checksum(*derived), checksum(*tuned));
}

TEST_F(TuningConfigSourceTest, TriesAtMostTheConfiguredNumberOfConfigs) {
  settings_.tune_candidates = 3;
  EXPECT_EQ(find().trials, 3);
}

TEST_F(TuningConfigSourceTest, PrintsTheReportOnlyIfTheSettingIsOn) {
  testing::internal::CaptureStderr();
  find();
  EXPECT_EQ(testing::internal::GetCapturedStderr().find("autotuning"), std::string::npos);
  settings_.print_autotuning = true;
  const auto other = problem_of(400);
  testing::internal::CaptureStderr();
  find(other);
  EXPECT_NE(testing::internal::GetCapturedStderr().find(
                "dorajit autotuning for kernel compose, with key as " + to_text(other)),
            std::string::npos);
}

TEST_F(TuningConfigSourceTest, ConcurrentThreadsTuneAProblemOnce) {
  auto source = make_source();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      EXPECT_NE(source.find(problem_, device_, kernels_).origin, ConfigOrigin::kDefault);
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(statistics_.tuned_problems, 1);
}

TEST_F(TuningConfigSourceTest, ReportContainsKernelKeyTimeAndBestConfig) {
  const TuneResult result{
      .winner = kernels::as_config({.block_size = 512, .num_warps = 2}),
      .default_config = kernels::as_config({.block_size = 1024, .num_warps = 1}),
      .winner_ns = 1500,
      .default_ns = 2000,
      .trials = std::vector<TrialResult>(12)};
  EXPECT_EQ(tuning_report(problem_, result, 0.534),
            "dorajit autotuning for kernel compose, with key as " + to_text(problem_) +
                ", finished after 0.53s, best config selected: b512-w2-r1-v1-u1-c0; 1.50 us, "
                "default b1024-w1-r1-v1-u1-c0 2.00 us, 12 configs\n");
}

}  // namespace
}  // namespace dorajit::autotune
