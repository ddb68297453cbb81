// The configs that a tuning compares, and their kernels.
#pragma once

#include <chrono>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "cache/records/tuning_records.h"
#include "kernel_templates/spaces.h"
#include "runtime/device/device.h"
#include "runtime/launch/kernel_cache.h"
#include "runtime/launch/problem.h"

namespace dorajit::autotune {

struct TrialResult {
  kernels::Config config;
  cache::Verdict verdict = cache::Verdict::kOk;
  double median_ns = std::numeric_limits<double>::quiet_NaN();  // NaN if it was not measured
  double mad_ns = std::numeric_limits<double>::quiet_NaN();     // median absolute deviation
  int samples = 0;
  std::optional<cache::Duel> duel{};
};

struct Candidate {
  TrialResult result;
  std::optional<launch::ReadyKernel> kernel;  // none once the candidate is out
};

// Called with the number of candidates handled so far and in all.
using TuneProgress = std::function<void(int done, int total)>;

// At most `most` configs of a space (0: all) without those in `left_out`: the first of a slim
// space, which has the likeliest first, and from everywhere in a comprehensive one. The default,
// which is the first of the space, always stays.
std::vector<kernels::Config> choose_configs(const std::vector<kernels::Config>& space,
                                            kernels::SpaceKind kind,
                                            std::span<const kernels::Config> left_out, int most);

// Compiles and loads all but the first, which has its kernel already, on several threads. What
// fails to compile, or by its compiler's figures spills or cannot be launched, gets its verdict and
// no kernel; what was not begun by the deadline is dropped.
void make_kernels(std::vector<Candidate>& candidates, const launch::Problem& problem,
                  device::Device& device, launch::KernelCache& kernels,
                  std::chrono::steady_clock::time_point deadline, const TuneProgress& progress);

}  // namespace dorajit::autotune
