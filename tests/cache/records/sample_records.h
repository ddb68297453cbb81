// Realistic trials and winners.
#pragma once

#include <string>
#include <vector>

#include "cache/records/tuning_records.h"

namespace dorajit::cache {

inline const std::string kDevice = "NVIDIA H200/9.0/132sm/l2:62914560";

inline std::string sample_problem(int i) {
  return "compose/bf16,bf16,f32,bf16/v8/c" + std::to_string(1024 + i) + "/r12";
}

inline Environment sample_environment() {
  return {"driver-575.57", "policy-1", "space-3f", "tuner-1", "templates-9c"};
}

inline kernels::Config sample_config(int i) {
  return {{'b', 256 * (1 + i % 8)}, {'w', 4 + i % 4}, {'r', 1}, {'v', 8}, {'u', 1}, {'c', 1}};
}

// No sample trial has this config, so the trials prove no winner unless they get another default.
inline kernels::Config unmeasured_config() { return {{'b', 64}, {'w', 1}, {'r', 1}, {'v', 1}}; }

inline Trial sample_trial(int problem, int i) {
  return {.problem = sample_problem(problem),
          .device = kDevice,
          .environment = sample_environment(),
          .config = sample_config(i),
          .default_config = unmeasured_config(),
          .verdict = Verdict::kOk,
          .median_ns = 1234.5 + i,
          .mad_ns = 0.25,
          .samples = 30,
          .created_unix_s = 1'700'000'000 + i,
          .host = "host-" + std::to_string(problem) + "-" + std::to_string(i) + "."};
}

inline std::vector<Trial> sample_trials(int problem, int count) {
  std::vector<Trial> trials;
  for (int i = 0; i < count; ++i) trials.push_back(sample_trial(problem, i));
  return trials;
}

inline Winner sample_winner(int problem) {
  return {.problem = sample_problem(problem),
          .device = kDevice,
          .environment = sample_environment(),
          .config = sample_config(problem),
          .default_config = sample_config(0),
          .median_ns = 1000.0 + problem,
          .default_median_ns = 2000.0,
          .created_unix_s = 1'700'000'000};
}

}  // namespace dorajit::cache
