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
#include "runtime/device/device.h"
#include "runtime/launch/kernel_cache.h"

namespace dorajit::autotune {

struct TuneLimits {
  double seconds = 2.0;                     // after this, the best config so far wins
  std::int64_t scratch_bytes = 0;           // 0: min(2 GiB, a quarter of free memory)
  int candidates = 0;                       // maximum number of configs to try; 0: all
  cache::LaunchJournal* journal = nullptr;  // may be null: then hanging configs are not recorded
};

struct TuneResult {
  kernels::Config winner;
  kernels::Config default_config;
  double winner_ns = 0;
  double default_ns = 0;
  // The default first; configs that the journal rejects last.
  std::vector<TrialResult> trials{};
};

// Why tuning found no winner.
struct TuneFailure : Error {
  // The default cannot run, is wrong, or failed while other configs were tried.
  TuneFailure(Error error, std::vector<TrialResult> misbehaved = {})
      : Error(std::move(error)), trials(std::move(misbehaved)) {}

  // No error, but nothing could be compared: no compiler, or too few samples in the time.
  bool is_inconclusive = false;
  std::vector<TrialResult> trials;  // of the candidates that misbehaved
};

// Tunes on scratch buffers, never on a caller's data. Compiles the space, or, where time is short,
// a part of it and then the neighbours of the fastest config of that part; checks the default
// config against the host reference and every candidate against the default, bit for bit, before
// and after timing; measures in interleaved rounds with a cold cache. The default wins unless a
// candidate is significantly faster. Configs with a journal entry are not launched and get a trial
// with that verdict; the caller removes the entries when the trials are stored. Configs that the
// session has quarantined are not launched either, except the default.
std::expected<TuneResult, TuneFailure> tune_problem(const TuningSession& session,
                                                    device::Device& device,
                                                    launch::KernelCache& kernels,
                                                    const TuneLimits& limits,
                                                    Statistics& statistics);

}  // namespace dorajit::autotune
