#include "autotune/robust_statistics.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace dorajit::autotune {
namespace {

TEST(RobustStatistics, MedianOfOddEvenAndNone) {
  EXPECT_EQ(median(std::vector<double>{3, 1, 2}), 2);
  EXPECT_EQ(median(std::vector<double>{4, 1, 3, 2}), 2.5);
  EXPECT_EQ(median({}), 0);
}

TEST(RobustStatistics, DeviationIgnoresAnOutlier) {
  EXPECT_EQ(median_absolute_deviation(std::vector<double>{1, 2, 3, 4, 1000}), 1);
  EXPECT_EQ(median_absolute_deviation(std::vector<double>{5, 5, 5}), 0);
}

TEST(RobustStatistics, AGainBelowOnePercentIsNone) {
  EXPECT_FALSE(is_faster(99.5, 0, 100, 0, 100));
  EXPECT_TRUE(is_faster(98.5, 0, 100, 0, 100));
}

TEST(RobustStatistics, FewSamplesAreNoEvidence) {
  EXPECT_FALSE(is_faster(50, 0, 100, 0, 1));
  EXPECT_FALSE(is_faster(50, 0, 100, 0, 4));
}

TEST(RobustStatistics, NoiseHidesAGain) {
  EXPECT_FALSE(is_faster(95, 10, 100, 10, 10));
  EXPECT_TRUE(is_faster(95, 1, 100, 1, 24));
}

// How often `gap` is taken for a gain, over samples with 10% noise.
int times_chosen(double gap, int samples) {
  std::mt19937 random(7);
  std::normal_distribution<double> noise(1.0, 0.1);
  int chosen = 0;
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<double> standard;
    std::vector<double> candidate;
    for (int i = 0; i < samples; ++i) {
      standard.push_back(100 * noise(random));
      candidate.push_back(100 * (1 - gap) * noise(random));
    }
    chosen += is_faster(median(candidate), median_absolute_deviation(candidate), median(standard),
                        median_absolute_deviation(standard), samples)
                  ? 1
                  : 0;
  }
  return chosen;
}

TEST(RobustStatistics, EqualConfigsAlmostNeverUnseatTheDefault) {
  EXPECT_LE(times_chosen(0.0, 24), 10);
}

TEST(RobustStatistics, AClearGainIsAlmostAlwaysSeen) { EXPECT_GE(times_chosen(0.25, 24), 190); }

}  // namespace
}  // namespace dorajit::autotune
