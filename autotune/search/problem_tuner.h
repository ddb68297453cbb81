// Finds the fastest config of a problem on a device, by measurement.
#pragma once

#include <cstdint>
#include <expected>
#include <utility>
#include <vector>

#include "autotune/search/candidates.h"
#include "autotune/search/tuning_session.h"
#include "cache/records/launch_journal.h"
#include "runtime/base/error.h"
#include "runtime/base/statistics.h"
#include "runtime/device/device.h"
#include "runtime/launch/kernel_cache.h"

namespace dorajit::autotune {

struct TuneLimits {
  double seconds = 2.0;                     // when spent, the best config so far is taken
  std::int64_t scratch_bytes = 0;           // 0: min(2 GiB, a quarter of free memory)
  int candidates = 0;                       // at most so many configs are tried; 0: all
  cache::LaunchJournal* journal = nullptr;  // may be null: what hangs is not remembered
};

struct TuneResult {
  kernels::Config winner;
  kernels::Config default_config;
  double winner_ns = 0;
  double default_ns = 0;
  // The default first, what the journal held against configs last.
  std::vector<TrialResult> trials{};
};

// Why there is no winner.
struct TuneFailure : Error {
  // The default cannot run, is wrong, or failed in the course of trying others.
  TuneFailure(Error error, std::vector<TrialResult> misbehaved = {})
      : Error(std::move(error)), trials(std::move(misbehaved)) {}

  // Nothing went wrong, but nothing could be compared: no compiler, or too few samples in the time.
  bool is_inconclusive = false;
  std::vector<TrialResult> trials;  // of those that misbehaved
};

// Tunes on scratch buffers, never on a caller's data: compiles the space, checks the default config
// against the host reference and every candidate against the default, bit for bit, before and after
// it is timed; then measures in interleaved rounds with a cold cache. The default wins unless it is
// beaten by more than the noise. What left its mark in the journal is not launched, and has a trial
// that says so; the caller lets the journal forget it when that is recorded. Configs
// that the session has quarantined are not launched either, except the default.
std::expected<TuneResult, TuneFailure> tune_problem(
    const TuningSession& session, device::Device& device, launch::KernelCache& kernels,
    const TuneLimits& limits, Statistics& statistics, const TuneProgress& progress = {});

}  // namespace dorajit::autotune
