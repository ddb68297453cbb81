// Finds the fastest config of a problem on a device, by measurement.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "autotune/candidates.h"
#include "cache/launch_journal.h"
#include "cache/tuning_records.h"
#include "kernel_templates/spaces.h"
#include "runtime/base/error.h"
#include "runtime/base/statistics.h"
#include "runtime/device/device.h"
#include "runtime/launch/kernel_cache.h"
#include "runtime/launch/problem.h"

namespace dorajit::autotune {

struct TuneLimits {
  double seconds = 2.0;            // when spent, the best config so far is taken
  std::int64_t scratch_bytes = 0;  // 0: min(2 GiB, a quarter of free memory)
  kernels::SpaceKind space = kernels::SpaceKind::kSlim;
  int candidates = 0;                       // at most so many configs are tried; 0: all
  std::vector<kernels::Config> left_out{};  // is not tried again; the default is all the same
  cache::LaunchJournal* journal = nullptr;  // may be null: what hangs is not remembered
};

struct TuneResult {
  kernels::Config winner;
  kernels::Config default_config;
  double winner_ns = 0;
  double default_ns = 0;
  // False when nothing could be compared (no compiler, or too few samples within the time): then
  // the winner is the default for want of evidence, and not worth remembering.
  bool is_conclusive = false;
  // Why there is no winner though candidates were tried; the trials are of those that misbehaved
  // before.
  std::optional<Error> failure{};
  std::vector<TrialResult>
      trials{};  // the default first, what the journal held against configs last
};

// Tunes on scratch buffers, never on a caller's data: compiles the space, checks the default config
// against the host reference and every candidate against the default, bit for bit, before and after
// it is timed; then measures in interleaved rounds with a cold cache. The default wins unless it is
// beaten by more than the noise. What left its mark in the journal is not launched, and has a trial
// that says so; the caller lets the journal forget it when that is recorded. Fails only when the
// default config itself cannot run or is wrong; `failure` is set when that came of trying another.
Result<TuneResult> tune_problem(const launch::Problem& problem, device::Device& device,
                                launch::KernelCache& kernels, const TuneLimits& limits,
                                Statistics& statistics, const TuneProgress& progress = {});

}  // namespace dorajit::autotune
