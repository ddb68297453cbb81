#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "autotune/search/measurement.h"

namespace dorajit::autotune {
namespace {

TEST(RobustStatistics, MedianOfOddEvenAndZeroSamples) {
  EXPECT_EQ(median(std::vector<double>{3, 1, 2}), 2);
  EXPECT_EQ(median(std::vector<double>{4, 1, 3, 2}), 2.5);
  EXPECT_EQ(median({}), 0);
}

TEST(RobustStatistics, MedianAbsoluteDeviationIgnoresAnOutlier) {
  EXPECT_EQ(median_absolute_deviation(std::vector<double>{1, 2, 3, 4, 1000}), 1);
  EXPECT_EQ(median_absolute_deviation(std::vector<double>{5, 5, 5}), 0);
}

TEST(RobustStatistics, TrimmedMeanIgnoresAnOutlier) {
  const Estimate estimate = trimmed_mean(std::vector<double>{1, 2, 3, 4, 1000});
  EXPECT_EQ(estimate.mean, 3);
  EXPECT_LT(estimate.standard_error, 2);
  EXPECT_EQ(trimmed_mean(std::vector<double>{7}).mean, 7);
  EXPECT_TRUE(std::isinf(trimmed_mean(std::vector<double>{7, 7, 7, 7}).standard_error));
}

TEST(RobustStatistics, StandardErrorEqualsTheDeviationOfTrimmedMeans) {
  std::mt19937 random(5);
  std::normal_distribution<double> noise(0.0, 0.1);
  double squares = 0;
  double errors = 0;
  constexpr int kTimes = 400;
  for (int i = 0; i < kTimes; ++i) {
    std::vector<double> samples(30);
    for (double& sample : samples) sample = noise(random);
    const Estimate estimate = trimmed_mean(samples);
    squares += estimate.mean * estimate.mean;
    errors += estimate.standard_error;
  }
  EXPECT_NEAR(std::sqrt(squares / kTimes), errors / kTimes, 0.1 * errors / kTimes);
}

bool are_faster(const std::vector<double>& log_ratios) {
  const Estimate ratio = trimmed_mean(log_ratios);
  return cache::is_faster(ratio.mean, ratio.standard_error);
}

std::vector<double> constant(double ratio, int rounds) {
  std::vector<double> ratios(static_cast<std::size_t>(rounds), std::log(ratio));
  return ratios;
}

TEST(RobustStatistics, GainBelowOnePercentIsNotFaster) {
  EXPECT_FALSE(are_faster(constant(0.995, 100)));
  EXPECT_TRUE(are_faster(constant(0.985, 100)));
}

TEST(RobustStatistics, FewerThanFiveSamplesAreNeverFaster) {
  EXPECT_FALSE(are_faster({}));
  EXPECT_FALSE(are_faster(constant(0.5, 4)));
  EXPECT_TRUE(are_faster(constant(0.5, 5)));
}

TEST(RobustStatistics, GainWithinTheNoiseIsNotFaster) {
  std::vector<double> ratios;
  for (int i = 0; i < 10; ++i) ratios.push_back(std::log(0.95) + (i % 2 == 0 ? 0.1 : -0.1));
  EXPECT_FALSE(are_faster(ratios));
  for (double& ratio : ratios) ratio = std::log(0.95) + 0.1 * (ratio - std::log(0.95));
  EXPECT_TRUE(are_faster(ratios));
}

const std::vector<UsualTime> kUsual(10, {.median = 100, .deviation = 1});

std::vector<double> round_with(int slow, double slow_time) {
  std::vector<double> samples(10, 100.0);
  for (int i = 0; i < slow; ++i) samples[static_cast<std::size_t>(i)] = slow_time;
  return samples;
}

TEST(DisturbedRounds, IsDisturbedOnlyIfNearlyAllCandidatesAreSlower) {
  EXPECT_TRUE(is_disturbed(round_with(10, 130), kUsual));
  EXPECT_TRUE(is_disturbed(round_with(9, 130), kUsual));
  EXPECT_FALSE(is_disturbed(round_with(5, 130), kUsual));
  EXPECT_FALSE(is_disturbed(round_with(0, 130), kUsual));
}

TEST(DisturbedRounds, SlowdownOfLessThanATenthIsNoDisturbance) {
  EXPECT_FALSE(is_disturbed(round_with(10, 108), kUsual));
}

TEST(DisturbedRounds, SlowdownWithinTheUsualSpreadIsNoDisturbance) {
  const std::vector<UsualTime> noisy(10, {.median = 100, .deviation = 10});
  EXPECT_FALSE(is_disturbed(round_with(10, 130), noisy));
  EXPECT_TRUE(is_disturbed(round_with(10, 150), noisy));
}

TEST(DisturbedRounds, EmptyRoundIsNotDisturbed) { EXPECT_FALSE(is_disturbed({}, {})); }

}  // namespace
}  // namespace dorajit::autotune
