// Measured trials, and the cost of an answer according to them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <format>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cache/database/trial_files.h"
#include "cache/records/winner_choice.h"
#include "kernel_templates/config.h"
#include "kernel_templates/spaces.h"
#include "runtime/launch/problem.h"

namespace dorajit::autotune {

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

inline kernels::SpaceTraits traits_of(const cache::Winner& winner, int processors) {
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

}  // namespace dorajit::autotune
