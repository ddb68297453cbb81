#include <gtest/gtest.h>

#include <vector>

#include "autotune/search/robust_statistics.h"

namespace dorajit::autotune {
namespace {

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
