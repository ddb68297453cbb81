// Measured trials: the files in databases/ are complete and match the kernels, and winners suit
// neighbouring problems and devices.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <format>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "autotune/search/tuning_session.h"
#include "autotune/sources/fallback_chain.h"
#include "cache/database/trial_files.h"
#include "cache/records/winner_choice.h"
#include "kernel_templates/config.h"
#include "kernel_templates/sizes.h"
#include "kernel_templates/spaces.h"
#include "runtime/base/hash.h"
#include "runtime/launch/problem.h"

namespace dorajit::autotune {
namespace {

using cache::Winner;
using launch::Problem;

constexpr double kMaxRegret = 1.15;  // at the 90th percentile, one bucket away
constexpr int kProcessors = 132;

// Measured trials, and the cost of an answer according to them.
class RecordedTrials {
 public:
  // Reads a file of JSON Lines; an incomplete file fails the test.
  explicit RecordedTrials(const std::string& path) {
    auto file = cache::read_trial_file(path);
    if (!file) {
      ADD_FAILURE() << file.error().message;
      return;
    }
    EXPECT_TRUE(file->is_complete()) << path;
    winners_ = cache::choose_winners(file->trials);
    for (const cache::Trial& trial : file->trials) {
      if (trial.verdict == cache::Verdict::kOk && trial.samples > 0) {
        times_[{trial.device, trial.problem}][kernels::to_text(trial.config)] = trial.median_ns;
      }
    }
  }

  // Adds the times of a device in a file like benchmarks/results/h200/config_times.json.
  void add_times(const std::string& path) {
    std::ifstream file(path);
    const auto document = nlohmann::json::parse(file);
    const auto configs = document["configs"].get<std::vector<std::string>>();
    const auto device = document["device"].get<std::string>();
    for (const auto& [problem, times] : document["median_ns"].items()) {
      for (const auto& [config, time] : times.items()) {
        times_[{device, problem}][configs.at(std::stoul(config))] = time.get<double>();
      }
    }
  }

  [[nodiscard]] const std::vector<cache::Winner>& winners() const { return winners_; }

  // The time of a config divided by that of the best config, on the winner's problem and device.
  [[nodiscard]] std::optional<double> regret(const cache::Winner& winner,
                                             const kernels::Config& config) const {
    const auto& times = times_.at({winner.device, winner.problem});
    const auto time = times.find(kernels::to_text(config));
    if (time == times.end()) return std::nullopt;
    const auto best =
        std::ranges::min_element(times, {}, [](const auto& one) { return one.second; });
    return time->second / best->second;
  }

 private:
  std::vector<cache::Winner> winners_;
  std::map<std::pair<std::string, std::string>, std::map<std::string, double>> times_;
};

kernels::SpaceTraits traits_of(const cache::Winner& winner, int processors) {
  return {.kind = winner.device.starts_with("cuda/") ? kernels::DeviceKind::kCuda
                                                     : kernels::DeviceKind::kCpu,
          .processors = processors};
}

struct Regrets {
  std::vector<double> values;

  double quantile(double share) {
    std::ranges::sort(values);
    return values.at(static_cast<std::size_t>(share * static_cast<double>(values.size() - 1)));
  }
  std::string summary() {
    return std::format("{} answers: median {:.3f}, 90% {:.3f}, most {:.3f}", values.size(),
                       quantile(0.5), quantile(0.9), quantile(1));
  }
};

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

// The cost of the other device's winners, on problems that were tuned on two CPUs of different
// vendors.
TEST(TwoDevices, WinnersOfTheOtherDeviceAreNearlyAsFastInTheMedian) {
  const RecordedTrials recorded(std::string(DORAJIT_SOURCE_DIR) +
                                "/benchmarks/results/cpu/two_machines.jsonl");
  std::map<std::string, Regrets> of_other;
  std::map<std::string, Regrets> of_default;
  for (const Winner& winner : recorded.winners()) {
    const auto problem = launch::parse_problem(winner.problem);
    ASSERT_TRUE(problem) << winner.problem;
    const Winner* other =
        nearest_device(recorded.winners(), {.problem = *problem,
                                            .device = winner.device,
                                            .templates = winner.environment.templates,
                                            .traits = traits_of(winner, 2)});
    ASSERT_NE(other, nullptr) << winner.problem;
    const auto regret = recorded.regret(winner, other->config);
    ASSERT_TRUE(regret) << winner.problem;
    of_other[winner.device].values.push_back(*regret);
    of_default[winner.device].values.push_back(
        recorded.regret(winner, winner.default_config).value());
  }
  ASSERT_EQ(of_other.size(), 2U);
  for (auto& [device, regrets] : of_other) {
    std::cout << device << "\n  the other's winners, " << regrets.summary() << "\n  the default, "
              << of_default[device].summary() << "\n";
    EXPECT_GE(regrets.values.size(), 30);
    EXPECT_LE(regrets.quantile(0.5), 1.05);
  }
}

}  // namespace
}  // namespace dorajit::autotune
