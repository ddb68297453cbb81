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
  std::optional<cache::PairedComparison> comparison{};
};

struct Candidate {
  TrialResult result;
  std::optional<launch::ReadyKernel> kernel;  // empty once the candidate is eliminated
};

// Called with the number of candidates handled so far and the total.
using TuneProgress = std::function<void(int done, int total)>;

// At most `max_configs` configs of a space (0: all) without those in `left_out`: the first ones of
// a slim space, which begins with the most promising configs; evenly spread ones of a comprehensive
// space. The default, the first config of the space, is always included.
std::vector<kernels::Config> choose_configs(const std::vector<kernels::Config>& space,
                                            kernels::SpaceKind kind,
                                            std::span<const kernels::Config> left_out,
                                            int max_configs);

// Compiles and loads all candidates except the first, which has its kernel already, on several
// threads. A candidate that fails to compile, or that spills or cannot be launched according to its
// compiler's figures, gets a verdict and no kernel. Candidates that were not started by the
// deadline are dropped.
void make_kernels(std::vector<Candidate>& candidates, const launch::Problem& problem,
                  device::Device& device, launch::KernelCache& kernels,
                  std::chrono::steady_clock::time_point deadline, const TuneProgress& progress);

}  // namespace dorajit::autotune
