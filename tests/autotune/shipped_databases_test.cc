// What ships in databases/: whole, of these kernels, and what its neighbours' winners cost.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <format>
#include <iostream>
#include <map>
#include <set>

#include "autotune/nearest_winner.h"
#include "cache/trial_files.h"
#include "cache/winner_choice.h"
#include "kernel_templates/config_text.h"
#include "kernel_templates/spaces.h"
#include "runtime/base/hash.h"

namespace dorajit::autotune {
namespace {

using cache::Trial;
using cache::Winner;
using kernels::Config;
using launch::Problem;

constexpr double kMostRegret = 1.15;  // at the 90th percentile, one bucket away

std::vector<std::string> shipped_texts() {
  std::vector<std::string> paths;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(DORAJIT_SOURCE_DIR) + "/databases")) {
    if (entry.path().extension() == ".jsonl") paths.push_back(entry.path().string());
  }
  return paths;
}

kernels::DeviceKind kind_of(const Winner& winner) {
  return winner.device.starts_with("cuda/") ? kernels::DeviceKind::kCuda
                                            : kernels::DeviceKind::kCpu;
}

std::vector<Trial> trials_in(const std::string& path) {
  auto file = cache::read_trial_file(path);
  if (!file) {
    ADD_FAILURE() << file.error().message;
    return {};
  }
  EXPECT_TRUE(file->is_whole()) << path;
  return std::move(file->trials);
}

TEST(ShippedDatabases, AreWholeAndOfTheseKernels) {
  ASSERT_FALSE(shipped_texts().empty());
  for (const std::string& path : shipped_texts()) {
    for (const Winner& winner : cache::choose_winners(trials_in(path))) {
      const auto problem = launch::parse_problem(winner.problem);
      ASSERT_TRUE(problem) << winner.problem;
      EXPECT_EQ(winner.environment.templates,
                hash_hex(kernels::source_identity(problem->variant, kind_of(winner))))
          << path << ": the kernel templates have changed since " << winner.problem
          << " was tuned; tune again as databases/README.md says";
    }
  }
}

// Times of the configs of each problem, as one tuning measured them.
using Times = std::map<std::string, std::map<std::string, double>>;

struct Answers {
  std::vector<double> regrets;  // the time of a neighbour's winner over that of the best config
  void add(double regret) { regrets.push_back(regret); }

  double quantile(double share) {
    std::ranges::sort(regrets);
    return regrets.at(static_cast<std::size_t>(share * static_cast<double>(regrets.size() - 1)));
  }
  std::string summary() {
    return std::format("{} answers: median {:.3f}, 90% {:.3f}, most {:.3f}", regrets.size(),
                       quantile(0.5), quantile(0.9), quantile(1));
  }
};

class Neighbours {
 public:
  explicit Neighbours(const std::vector<Trial>& trials) : winners_(cache::choose_winners(trials)) {
    for (const Trial& trial : trials) {
      if (trial.verdict == cache::Verdict::kOk && trial.samples > 0) {
        times_[trial.problem][kernels::to_text(trial.config)] = trial.median_ns;
      }
    }
  }

  // What each problem would run if nothing but its neighbours had been tuned, of which all are at
  // least `least` factors of two away: by that distance, rounded down.
  std::map<int, Answers> regrets(double least) {
    std::map<int, Answers> found;
    for (const Winner& winner : winners_) {
      const Problem problem = launch::parse_problem(winner.problem).value();
      std::vector<Winner> others;
      std::ranges::copy_if(winners_, std::back_inserter(others), [&](const Winner& other) {
        return other.problem != winner.problem && distance(problem, other) >= least;
      });
      const kernels::SpaceTraits traits{.kind = kind_of(winner), .processors = 132};
      const auto space = kernels::config_space(problem.variant, traits, problem.vector_width,
                                               kernels::SpaceKind::kComprehensive);
      const Winner* nearest = nearest_shape(others, {.problem = problem,
                                                     .device = winner.device,
                                                     .templates = winner.environment.templates,
                                                     .space = space});
      if (nearest == nullptr) continue;
      const auto& times = times_.at(winner.problem);
      const auto time = times.find(kernels::to_text(nearest->config));
      if (time == times.end()) continue;
      const double best =
          std::ranges::min_element(times, {}, [](const auto& one) { return one.second; })->second;
      found[static_cast<int>(distance(problem, *nearest))].add(time->second / best);
    }
    return found;
  }

 private:
  static double distance(const Problem& problem, const Winner& other) {
    const Problem there = launch::parse_problem(other.problem).value();
    return std::abs(std::log2(static_cast<double>(problem.num_cols) /
                              static_cast<double>(there.num_cols))) +
           std::abs(problem.row_bucket - there.row_bucket);
  }

  std::vector<Winner> winners_;
  Times times_;
};

TEST(ShippedDatabases, ANeighbourOneBucketAwayCostsLittle) {
  for (const std::string& path : shipped_texts()) {
    const std::vector<Trial> trials = trials_in(path);
    Neighbours neighbours(trials);
    std::cout << path << "\n";
    for (const double least : {1.0, 2.0}) {
      for (auto& [away, answers] : neighbours.regrets(least)) {
        std::cout << std::format("  neighbours from {} factors of two on, nearest {} to {} away, ",
                                 least, away, away + 1)
                  << answers.summary() << "\n";
        if (least == 1.0 && away == 1) {
          EXPECT_GE(answers.regrets.size(), 100) << path;
          EXPECT_LE(answers.quantile(0.9), kMostRegret) << path;
        }
      }
    }
  }
}

}  // namespace
}  // namespace dorajit::autotune
