#include "autotune/search/tournament.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>

namespace dorajit::autotune {
namespace {

constexpr double kFailed = std::numeric_limits<double>::quiet_NaN();

// A device on which every sample has its own noise, a few samples are outliers, the clock drifts,
// and other load sometimes slows several consecutive rounds.
struct NoisyDevice {
  double noise = 0.10;
  double outliers = 0.02;
  double drift = 0.10;
  double neighbours = 0.01;
  unsigned seed = 1;
};

// Runs a complete tournament. Adds the number of samples to `samples`.
std::size_t decide(const std::vector<double>& true_times, const NoisyDevice& device,
                   long& samples) {
  std::mt19937 random(device.seed);
  std::normal_distribution<double> noise(0.0, device.noise);
  std::uniform_real_distribution<double> uniform(0.0, 1.0);
  Tournament tournament(true_times.size());
  int round = 0;
  int slowed = 0;
  while (tournament.stages_left() > 0) {
    while (!tournament.stage_is_decided()) {
      if (slowed > 0) --slowed;
      if (uniform(random) < device.neighbours) slowed = 4;
      std::vector<double> times;
      for (const std::size_t candidate : tournament.running()) {
        const double clock = 1 + device.drift * std::sin(round / 40.0);
        const double outlier = uniform(random) < device.outliers ? 1.5 + 1.5 * uniform(random) : 1;
        times.push_back(true_times[candidate] * clock * outlier * (slowed > 0 ? 1.5 : 1) *
                        std::exp(noise(random)));
      }
      tournament.add_round(times);
      ++round;
    }
    tournament.end_stage();
  }
  samples += tournament.samples_taken();
  return tournament.winner();
}

struct Figures {
  int right = 0;
  long samples = 0;  // average per decision
};

Figures decide_often(const std::vector<double>& true_times, std::size_t right, NoisyDevice device,
                     int times = 100) {
  Figures figures;
  for (int i = 0; i < times; ++i) {
    device.seed = static_cast<unsigned>(1000 + i);
    figures.right += decide(true_times, device, figures.samples) == right ? 1 : 0;
  }
  figures.samples /= times;
  return figures;
}

// The default takes 100; the others the same or up to half as much again.
std::vector<double> no_gain(std::size_t candidates) {
  std::vector<double> times(candidates, 100.0);
  for (std::size_t i = 1; i < candidates; i += 2) {
    times[i] = 100.0 * (1 + 0.5 * static_cast<double>(i) / static_cast<double>(candidates));
  }
  return times;
}

std::vector<double> gain_of_five_percent(std::size_t candidates) {
  std::vector<double> times = no_gain(candidates);
  times[candidates * 2 / 3] = 95.0;
  return times;
}

TEST(Tournament, FindsAGainOfFivePercentAmongTwelveInTenPercentNoise) {
  const Figures figures = decide_often(gain_of_five_percent(12), 8, {});
  EXPECT_GE(figures.right, 95);
  EXPECT_LE(figures.samples, 1500);
  RecordProperty("right", figures.right);
  RecordProperty("samples", static_cast<int>(figures.samples));
}

TEST(Tournament, FindsAGainOfFivePercentAmongFourHundredInTenPercentNoise) {
  const Figures figures = decide_often(gain_of_five_percent(400), 266, {});
  EXPECT_GE(figures.right, 95);
  EXPECT_LE(figures.samples, 27000);
  RecordProperty("right", figures.right);
  RecordProperty("samples", static_cast<int>(figures.samples));
}

TEST(Tournament, KeepsTheDefaultWithoutAGain) {
  for (const std::size_t candidates : {2U, 12U, 400U}) {
    const Figures figures = decide_often(no_gain(candidates), 0, {});
    EXPECT_GE(figures.right, 95) << candidates;
  }
  const std::vector<double> all_equal(12, 100.0);
  EXPECT_GE(decide_often(all_equal, 0, {}).right, 95);
}

TEST(Tournament, LowNoiseTakesFewSamples) {
  const NoisyDevice quiet{.noise = 0.01, .outliers = 0.01, .drift = 0.02, .neighbours = 0};
  const Figures slim = decide_often(gain_of_five_percent(12), 8, quiet);
  EXPECT_EQ(slim.right, 100);
  EXPECT_LE(slim.samples, 260);
  const Figures comprehensive = decide_often(gain_of_five_percent(400), 266, quiet);
  EXPECT_EQ(comprehensive.right, 100);
  EXPECT_LE(comprehensive.samples, 4000);
}

TEST(Tournament, SlowDefaultIsNotEliminated) {
  Tournament tournament(9);
  while (tournament.stages_left() > 0) {
    ASSERT_EQ(tournament.running().front(), 0U);
    std::vector<double> times;
    for (const std::size_t candidate : tournament.running()) {
      times.push_back(candidate == 0 ? 900.0 : 100.0 + static_cast<double>(candidate));
    }
    tournament.add_round(times);
    if (tournament.stage_is_decided()) tournament.end_stage();
  }
  EXPECT_EQ(tournament.winner(), 1U);
}

// Adds rounds with the given times until the stage is decided, then ends the stage.
void play_stage(Tournament& tournament, const std::function<double(std::size_t)>& time_of) {
  while (!tournament.stage_is_decided()) {
    std::vector<double> times;
    for (const std::size_t candidate : tournament.running()) times.push_back(time_of(candidate));
    tournament.add_round(times);
  }
  tournament.end_stage();
}

TEST(Tournament, ChallengersAreHalvedUntilTheFinalComparison) {
  Tournament tournament(13);
  const auto time_of = [](std::size_t candidate) { return 100.0 - static_cast<double>(candidate); };
  for (const std::size_t left : {6U, 3U, 1U}) {
    play_stage(tournament, time_of);
    EXPECT_EQ(tournament.running().size(), left + 1);
  }
  EXPECT_EQ(tournament.stages_left(), 1);
  EXPECT_TRUE(tournament.times(12).empty()) << "the final comparison starts with no rounds";
  play_stage(tournament, time_of);
  EXPECT_EQ(tournament.stages_left(), 0);
  EXPECT_EQ(tournament.winner(), 12U);
}

TEST(Tournament, ChallengersFarBehindAreEliminatedBeforeTheStageEnds) {
  Tournament tournament(40);
  const auto time_of = [](std::size_t candidate) { return candidate < 6 ? 100.0 : 130.0; };
  for (int round = 0; round < 5; ++round) {
    ASSERT_EQ(tournament.running().size(), 40U) << "nobody is eliminated before round five";
    std::vector<double> times;
    for (const std::size_t candidate : tournament.running()) times.push_back(time_of(candidate));
    tournament.add_round(times);
  }
  EXPECT_EQ(tournament.running().size(), 6U);
  EXPECT_EQ(tournament.stages_left(), 3);
}

TEST(Tournament, OneChallengerStaysAgainstAMuchFasterDefault) {
  Tournament tournament(40);
  while (tournament.stages_left() > 0) {
    std::vector<double> times;
    for (const std::size_t candidate : tournament.running()) {
      times.push_back(candidate == 0 ? 100.0 : 200.0 - static_cast<double>(candidate));
    }
    tournament.add_round(times);
    if (tournament.stage_is_decided()) tournament.end_stage();
  }
  EXPECT_EQ(tournament.winner(), 0U);
  EXPECT_EQ(tournament.challenger(), 39U);
  EXPECT_TRUE(tournament.final_comparison().has_value());
}

TEST(Tournament, ChallengersAreNotEliminatedForTheNoiseOfFiveRounds) {
  std::vector<double> times(200, 100.0);
  times[77] = 80.0;
  EXPECT_GE(decide_often(times, 77, {.noise = 0.3, .outliers = 0.1}).right, 95);
}

TEST(Tournament, FailingChallengerIsEliminated) {
  Tournament tournament(4);
  play_stage(tournament,
             [](std::size_t c) { return c == 2 ? kFailed : 100.0 - (c == 3 ? 20 : 0); });
  play_stage(tournament, [](std::size_t c) { return c == 3 ? 80.0 : 100.0; });
  EXPECT_EQ(tournament.winner(), 3U);
}

TEST(Tournament, RunnerUpReplacesADisqualifiedChallenger) {
  Tournament tournament(5);
  const auto time_of = [](std::size_t candidate) { return 100.0 - static_cast<double>(candidate); };
  while (tournament.stages_left() > 0) play_stage(tournament, time_of);
  ASSERT_EQ(tournament.winner(), 4U);
  tournament.disqualify_challenger();
  EXPECT_EQ(tournament.winner(), 0U);
  play_stage(tournament, time_of);
  EXPECT_EQ(tournament.winner(), 3U);
}

TEST(Tournament, FailingDefaultEndsTheTournament) {
  Tournament tournament(3);
  tournament.add_round(std::vector<double>{kFailed, 1, 1});
  EXPECT_EQ(tournament.stages_left(), 0);
  EXPECT_EQ(tournament.winner(), 0U);
}

TEST(Tournament, StagesCutShortStillLeadToTheFinalComparison) {
  Tournament tournament(6);
  EXPECT_TRUE(tournament.stage_needs_rounds());
  tournament.add_round(std::vector<double>{100, 99, 50, 98, 97, 96});
  EXPECT_FALSE(tournament.stage_needs_rounds());
  while (tournament.running().size() > 2) {
    EXPECT_FALSE(tournament.stage_needs_rounds());
    tournament.end_stage();
  }
  EXPECT_EQ(tournament.running().back(), 2U);
  EXPECT_TRUE(tournament.stage_needs_rounds());
  for (int i = 0; i < cache::kMinSamples; ++i) tournament.add_round(std::vector<double>{100, 50});
  EXPECT_FALSE(tournament.stage_needs_rounds());
  tournament.end_stage();
  EXPECT_EQ(tournament.winner(), 2U);
}

TEST(Tournament, DisturbedRoundsAreNotCountedUnlessTheDisturbancePersists) {
  Tournament tournament(2);
  for (int i = 0; i < 10; ++i) tournament.add_round(std::vector<double>{100, 90});
  tournament.add_round(std::vector<double>{150, 140});
  EXPECT_EQ(tournament.disturbed_rounds(), 1);
  EXPECT_EQ(tournament.times(0).size(), 10U);
  tournament.add_round(std::vector<double>{150, 90});
  EXPECT_EQ(tournament.disturbed_rounds(), 1) << "one of two candidates is not nearly all";
  for (int i = 0; i < 20; ++i) tournament.add_round(std::vector<double>{150, 140});
  EXPECT_GT(tournament.times(0).size(), 12U) << "a device that stays slow is measured as it is";
}

TEST(Tournament, DefaultWithoutChallengersIsMeasured) {
  Tournament tournament(1);
  EXPECT_EQ(tournament.stages_left(), 1);
  EXPECT_TRUE(tournament.stage_needs_rounds());
  play_stage(tournament, [](std::size_t) { return 100.0; });
  EXPECT_EQ(tournament.stages_left(), 0);
  EXPECT_EQ(tournament.winner(), 0U);
  EXPECT_GE(tournament.times(0).size(), 24U);
}

TEST(Tournament, DefaultWithoutRemainingChallengersIsMeasured) {
  Tournament tournament(3);
  tournament.add_round(std::vector<double>{100, kFailed, kFailed});
  EXPECT_EQ(tournament.stages_left(), 1);
  play_stage(tournament, [](std::size_t) { return 100.0; });
  EXPECT_EQ(tournament.stages_left(), 0);
  EXPECT_GE(tournament.times(0).size(), 24U);
}

}  // namespace
}  // namespace dorajit::autotune
