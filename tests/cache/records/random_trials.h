// Random trials of many machines: few problems, few configs, many runs.
#pragma once

#include <limits>
#include <random>
#include <vector>

#include "tests/cache/records/sample_records.h"

namespace dorajit::cache {

class RandomTrials {
 public:
  explicit RandomTrials(unsigned seed) : random_(seed) {}

  // One tuning: the default config and some other configs.
  std::vector<Trial> run(int problem) {
    Trial trial = sample_trial(problem, 0);
    trial.environment.driver = "driver-" + std::to_string(pick(2));
    trial.environment.space = "space-" + std::to_string(pick(2));
    trial.environment.templates = "templates-" + std::to_string(pick(2));
    trial.default_config = sample_config(pick(2));
    trial.created_unix_s = 1'700'000'000 + pick(4);
    trial.host = "host-" + std::to_string(pick(2));
    std::vector<Trial> trials;
    for (int i = 0; i < 4; ++i) {
      trial.config = sample_config(i);
      trial.verdict = pick(12) == 0 ? Verdict::kWrongBits : Verdict::kOk;
      trial.samples = 3 + pick(6);
      trial.median_ns = 900 + 50 * pick(5);
      trial.comparison.reset();
      if (i > 0 && pick(3) == 0)
        trial.comparison = {.log_ratio = -0.05 * pick(3), .standard_error = 0.01};
      trial.mad_ns = pick(3);
      if (pick(10) == 0) {
        trial.verdict = Verdict::kSpills;
        trial.median_ns = trial.mad_ns = std::numeric_limits<double>::quiet_NaN();
        trial.samples = 0;
      }
      if (pick(12) != 0) trials.push_back(trial);
    }
    return trials;
  }

  std::vector<Trial> runs(int count, int problems) {
    std::vector<Trial> trials;
    for (int i = 0; i < count; ++i) {
      for (Trial& trial : run(pick(problems))) trials.push_back(std::move(trial));
    }
    return trials;
  }

  int pick(int count) { return std::uniform_int_distribution(0, count - 1)(random_); }
  std::mt19937& generator() { return random_; }

 private:
  std::mt19937 random_;
};

}  // namespace dorajit::cache
