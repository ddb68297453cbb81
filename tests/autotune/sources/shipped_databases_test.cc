// The files in databases/: they are complete, match the kernels, and their winners suit
// neighbouring problems.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <map>

#include "autotune/sources/fallback_chain.h"
#include "autotune/sources/tuning_config_source.h"
#include "kernel_templates/sizes.h"
#include "runtime/base/hash.h"
#include "tests/autotune/sources/recorded_trials.h"

namespace dorajit::autotune {
namespace {

using cache::Winner;
using launch::Problem;

constexpr double kMaxRegret = 1.15;  // at the 90th percentile, one bucket away
constexpr int kProcessors = 132;

std::vector<std::string> shipped_texts() {
  std::vector<std::string> paths;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(DORAJIT_SOURCE_DIR) + "/databases")) {
    if (entry.path().extension() == ".jsonl") paths.push_back(entry.path().string());
  }
  return paths;
}

TEST(ShippedDatabases, AreCompleteAndMatchTheKernels) {
  ASSERT_FALSE(shipped_texts().empty());
  for (const std::string& path : shipped_texts()) {
    const RecordedTrials recorded(path);
    for (const Winner& winner : recorded.winners()) {
      const auto problem = launch::parse_problem(winner.problem);
      ASSERT_TRUE(problem) << winner.problem;
      EXPECT_EQ(winner.environment.templates,
                hash_hex(kernels::source_identity(problem->variant, kernels::DeviceKind::kCuda)))
          << path << ": the kernel templates have changed since " << winner.problem
          << " was tuned; tune again as databases/README.md says";
      EXPECT_EQ(winner.environment.tuner, kTunerVersion) << path << " is stale; tune again";
      EXPECT_EQ(winner.environment.policy, kMeasurementPolicy) << path << " is stale; tune again";
    }
  }
}

double distance(const Problem& problem, const Problem& there) {
  return std::abs(std::log2(static_cast<double>(problem.key[kernels::kCols]) /
                            static_cast<double>(there.key[kernels::kCols]))) +
         static_cast<double>(std::abs(problem.key[kernels::kRows] - there.key[kernels::kRows]));
}

// The regrets of problems that use only neighbours at least `least` factors of two away, grouped by
// the distance of the nearest neighbour, rounded down.
std::map<int, Regrets> regrets_of_neighbours(const RecordedTrials& recorded, double least) {
  std::map<int, Regrets> found;
  std::vector<Problem> problems;
  for (const Winner& winner : recorded.winners()) {
    problems.push_back(launch::parse_problem(winner.problem).value());
  }
  for (std::size_t i = 0; i < problems.size(); ++i) {
    const Winner& winner = recorded.winners()[i];
    const Problem& problem = problems[i];
    std::vector<Winner> others;
    for (std::size_t j = 0; j < problems.size(); ++j) {
      if (distance(problem, problems[j]) >= least) others.push_back(recorded.winners()[j]);
    }
    const Winner* nearest = nearest_shape(others, {.problem = problem,
                                                   .device = winner.device,
                                                   .templates = winner.environment.templates,
                                                   .traits = traits_of(winner, kProcessors)});
    if (nearest == nullptr) continue;
    if (const auto regret = recorded.regret(winner, nearest->config)) {
      const Problem there = launch::parse_problem(nearest->problem).value();
      found[static_cast<int>(distance(problem, there))].values.push_back(*regret);
    }
  }
  return found;
}

// The shipped file contains only the times of winners and defaults; the times of all configs are in
// a separate file.
TEST(ShippedDatabases, WinnerOfTheNextBucketIsNearlyAsFast) {
  const std::string root = DORAJIT_SOURCE_DIR;
  RecordedTrials recorded(root + "/databases/nvidia_h200.jsonl");
  recorded.add_times(root + "/benchmarks/results/h200/config_times.json");
  for (const int least : {1, 2}) {
    auto found = regrets_of_neighbours(recorded, least);
    EXPECT_TRUE(least != 1 || found.contains(1));
    for (auto& [away, regrets] : found) {
      std::cout << "neighbours from " << least << " on, nearest " << away << " to " << away + 1
                << " factors of two away: " << regrets.summary() << "\n";
      if (least == 1 && away == 1) {
        EXPECT_GE(regrets.values.size(), 100);
        EXPECT_LE(regrets.quantile(0.9), kMaxRegret);
      }
    }
  }
}

}  // namespace
}  // namespace dorajit::autotune
