#include "cache/records/winner_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/cache/records/random_trials.h"

namespace dorajit::cache {
namespace {

constexpr int kDefaultConfig = 0;
constexpr int kFewestSamples = 4;  // fewer than the minimum for a winner

// One run of one problem, with a default of 1000 ns.
class OneRun {
 public:
  explicit OneRun(std::int64_t time = 1000, int samples = 24) {
    trial_.created_unix_s = time;
    trial_.default_config = sample_config(kDefaultConfig);
    trial_.samples = samples;
    trial_.mad_ns = 1;
    add(kDefaultConfig, 1000);
  }

  OneRun& add(int config, double median_ns) { return add(config, median_ns, trial_.samples); }
  OneRun& add(int config, double median_ns, int samples) {
    Trial trial = trial_;
    trial.config = sample_config(config);
    trial.median_ns = median_ns;
    trial.samples = samples;
    trials_.push_back(trial);
    return *this;
  }
  OneRun& refuse(int config, Verdict verdict) {
    Trial trial = trial_;
    trial.config = sample_config(config);
    trial.verdict = verdict;
    trial.samples = 0;
    trial.median_ns = trial.mad_ns = std::numeric_limits<double>::quiet_NaN();
    trials_.push_back(trial);
    return *this;
  }
  OneRun& comparison(int config, double median_ns, double ratio) {
    add(config, median_ns);
    trials_.back().comparison = {.log_ratio = std::log(ratio), .standard_error = 0.002};
    return *this;
  }
  OneRun& each(void (*change)(Trial&)) {
    std::ranges::for_each(trials_, change);
    return *this;
  }

  // The trials of this run and of another one.
  [[nodiscard]] std::vector<Trial> with(const OneRun& other) const {
    std::vector<Trial> all = trials_;
    all.insert(all.end(), other.trials_.begin(), other.trials_.end());
    return all;
  }
  [[nodiscard]] const std::vector<Trial>& trials() const { return trials_; }

 private:
  Trial trial_ = sample_trial(1, 0);
  std::vector<Trial> trials_;
};

kernels::Config config_of(const std::optional<Winner>& winner) {
  return winner ? winner->config : kernels::Config{};
}

TEST(WinnerChoice, NoTrialsGiveNoWinner) {
  EXPECT_FALSE(choose_winner({}));
  EXPECT_TRUE(choose_winners({}).empty());
}

TEST(WinnerChoice, FastestConfigOfARunWins) {
  const OneRun run = OneRun().add(1, 900).add(2, 800).add(3, 850);
  const auto winner = choose_winner(run.trials());
  ASSERT_TRUE(winner);
  EXPECT_EQ(winner->config, sample_config(2));
  EXPECT_EQ(winner->default_config, sample_config(kDefaultConfig));
  EXPECT_EQ(winner->median_ns, 800);
  EXPECT_EQ(winner->default_median_ns, 1000);
  EXPECT_EQ(winner->problem, sample_problem(1));
  EXPECT_EQ(winner->device, kDevice);
  EXPECT_EQ(winner->environment, sample_environment());
  EXPECT_EQ(winner->created_unix_s, 1000);
}

TEST(WinnerChoice, FinalComparisonDecidesARunRegardlessOfMedians) {
  EXPECT_EQ(config_of(choose_winner(OneRun().add(1, 800).comparison(2, 990, 0.95).trials())),
            sample_config(2));
  EXPECT_EQ(config_of(choose_winner(OneRun().add(1, 800).comparison(2, 900, 0.995).trials())),
            sample_config(kDefaultConfig));
}

TEST(WinnerChoice, DefaultWinsIfTheFinalistWasRefused) {
  EXPECT_EQ(
      config_of(choose_winner(
          OneRun().add(1, 800).comparison(2, 900, 0.9).refuse(2, Verdict::kWrongBits).trials())),
      sample_config(kDefaultConfig));
}

TEST(WinnerChoice, DefaultWinsIfTheGainIsWithinTheNoise) {
  EXPECT_EQ(config_of(choose_winner(OneRun().add(1, 995).trials())), sample_config(kDefaultConfig));
}

TEST(WinnerChoice, ConfigWithFewSamplesDoesNotWin) {
  EXPECT_EQ(config_of(choose_winner(OneRun().add(1, 500, 4).trials())),
            sample_config(kDefaultConfig));
}

TEST(WinnerChoice, WithoutAMeasuredDefaultThereIsNoWinner) {
  const OneRun few_samples = OneRun(1000, 4).add(1, 500, 24);
  EXPECT_FALSE(choose_winner(few_samples.trials()));
  const OneRun absent =
      OneRun().add(1, 500).each([](Trial& t) { t.default_config = sample_config(5); });
  EXPECT_FALSE(choose_winner(absent.trials()));
}

TEST(WinnerChoice, TimesOfDifferentRunsAreNotCompared) {
  // Config 1 is faster than the default of the other run, but not faster than its own.
  const OneRun slow = OneRun(1000, 24);
  const OneRun fast = OneRun(2000, 24).add(1, 450).each([](Trial& trial) {
    if (trial.config == sample_config(kDefaultConfig)) trial.median_ns = 400;
  });
  EXPECT_EQ(config_of(choose_winner(slow.with(fast))), sample_config(kDefaultConfig));
}

TEST(WinnerChoice, RefusedConfigNeverWins) {
  for (const Verdict verdict : {Verdict::kWrongBits, Verdict::kOutOfBounds,
                                Verdict::kFailedToLaunch, Verdict::kDidNotFinish}) {
    const OneRun winning = OneRun(2000, 24).add(1, 700).add(2, 800);
    const OneRun refusing = OneRun(1000, 6).refuse(1, verdict);
    EXPECT_EQ(config_of(choose_winner(winning.with(refusing))), sample_config(2));
    EXPECT_EQ(config_of(choose_winner(refusing.with(winning))), sample_config(2));
  }
}

TEST(WinnerChoice, RefusalOfOtherTemplatesIsIgnored) {
  const OneRun winning = OneRun(2000, 24).add(1, 700);
  const OneRun refusing = OneRun(1000, 6).refuse(1, Verdict::kWrongBits).each([](Trial& t) {
    t.environment.templates = "other";
  });
  EXPECT_EQ(config_of(choose_winner(winning.with(refusing))), sample_config(1));
}

TEST(WinnerChoice, SpillingConfigIsNotRefusedInOtherRuns) {
  const OneRun winning = OneRun(2000, 24).add(1, 700);
  const OneRun other = OneRun(1000, 6).refuse(1, Verdict::kSpills);
  EXPECT_EQ(config_of(choose_winner(winning.with(other))), sample_config(1));
}

TEST(WinnerChoice, RunWithARefusedDefaultDecidesNothing) {
  const OneRun run = OneRun(2000, 24).add(1, 700);
  const OneRun refusing = OneRun(1000, 24).refuse(kDefaultConfig, Verdict::kWrongBits);
  EXPECT_FALSE(choose_winner(run.with(refusing)));
}

TEST(WinnerChoice, RunWithMoreSamplesDecidesBeforeANewerOne) {
  const OneRun much = OneRun(1000, 24).add(1, 800);
  const OneRun little = OneRun(2000, 8).add(2, 700);
  EXPECT_EQ(config_of(choose_winner(much.with(little))), sample_config(1));
  const OneRun as_much = OneRun(2000, 24).add(2, 700);
  EXPECT_EQ(config_of(choose_winner(much.with(as_much))), sample_config(2));
}

TEST(WinnerChoice, OnlySamplesOfTheDecisionAreCompared) {
  // The default of the newer run has more samples, but its winner has fewer.
  const OneRun much = OneRun(1000, 24).add(1, 800);
  const OneRun little = OneRun(2000, 30).add(2, 700, 6);
  EXPECT_EQ(config_of(choose_winner(much.with(little))), sample_config(1));
}

TEST(WinnerChoice, OnlyRunsWithTheNewestDriverAndTemplatesCount) {
  const OneRun old = OneRun(1000, 24).add(1, 800);
  const OneRun driver =
      OneRun(2000, 8).add(2, 700).each([](Trial& t) { t.environment.driver = "driver-new"; });
  EXPECT_EQ(config_of(choose_winner(old.with(driver))), sample_config(2));
  const OneRun templates =
      OneRun(2000, 8).add(3, 700).each([](Trial& t) { t.environment.templates = "templates-new"; });
  EXPECT_EQ(config_of(choose_winner(old.with(templates))), sample_config(3));
  const OneRun space =
      OneRun(2000, 8).add(3, 700).each([](Trial& t) { t.environment.space = "space-new"; });
  EXPECT_EQ(config_of(choose_winner(old.with(space))), sample_config(1));
}

std::vector<std::int64_t> checksums(const std::vector<Winner>& winners) {
  std::vector<std::int64_t> sums;
  for (const Winner& winner : winners) sums.push_back(checksum(winner));
  return sums;
}

TEST(WinnerChoiceProperties, WinnerIsIndependentOfOrderAndDuplicates) {
  RandomTrials random(7);
  int derived = 0;
  for (int round = 0; round < 300; ++round) {
    std::vector<Trial> trials = random.runs(6, 2);
    const auto expected = checksums(choose_winners(trials));
    derived += static_cast<int>(expected.size());
    const std::size_t count = trials.size();
    for (std::size_t i = 0; i < count; i += 3) trials.push_back(trials[i]);
    std::ranges::shuffle(trials, random.generator());
    EXPECT_EQ(checksums(choose_winners(trials)), expected) << round;
  }
  EXPECT_GT(derived, 300) << "too few of the random trials have winners";
}

TEST(WinnerChoiceProperties, RunWithFewerSamplesNeverReplacesOneWithMore) {
  RandomTrials random(8);
  int compared = 0;
  for (int round = 0; round < 300; ++round) {
    std::vector<Trial> trials = random.runs(4, 1);
    const auto winner = choose_winner(trials);
    if (!winner) continue;
    ++compared;
    // Later runs with fewer samples, with another default, and with unverified configs, each with a
    // config that would be the fastest by far.
    OneRun worse(2'000'000'000, kFewestSamples);
    worse.add(5, 1);
    OneRun unproved(2'000'000'001, 99);
    unproved.add(5, 1).each([](Trial& t) { t.default_config = unmeasured_config(); });
    OneRun failed(2'000'000'002, 99);
    failed.add(5, 1).refuse(5, Verdict::kWrongBits).refuse(kDefaultConfig + 6, Verdict::kWrongBits);
    for (const OneRun* run : {&worse, &unproved}) {
      for (Trial trial : run->trials()) {
        trial.problem = winner->problem;
        trial.environment = winner->environment;
        trials.push_back(trial);
      }
    }
    ASSERT_TRUE(choose_winner(trials));
    EXPECT_EQ(checksum(*choose_winner(trials)), checksum(*winner)) << round;
    for (Trial trial : failed.trials()) {
      trial.problem = winner->problem;
      trial.environment = winner->environment;
      trials.push_back(trial);
    }
    ASSERT_TRUE(choose_winner(trials));
    EXPECT_NE(choose_winner(trials)->config, sample_config(5)) << round;
  }
  EXPECT_GT(compared, 100);
}

TEST(WinnerChoice, DecidingTrialsGiveTheSameWinners) {
  RandomTrials random(29);
  std::size_t left_out = 0;
  for (int round = 0; round < 300; ++round) {
    const std::vector<Trial> trials = random.runs(5, 2);
    const std::vector<Trial> deciding = deciding_trials(trials);
    EXPECT_LE(deciding.size(), 2 * choose_winners(trials).size());
    left_out += trials.size() - deciding.size();
    const auto of_all = choose_winners(trials);
    const auto of_few = choose_winners(deciding);
    ASSERT_EQ(of_few.size(), of_all.size()) << round;
    for (std::size_t i = 0; i < of_all.size(); ++i) {
      EXPECT_EQ(checksum(of_few[i]), checksum(of_all[i])) << round;
    }
  }
  EXPECT_GT(left_out, 1000);
}

}  // namespace
}  // namespace dorajit::cache
