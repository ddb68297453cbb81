// Answers from the tuning database, tunes if the policy allows, and otherwise uses the fallback
// chain.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "autotune/search/problem_tuner.h"
#include "autotune/search/tuning_session.h"
#include "autotune/service/client/daemon_requests.h"
#include "autotune/sources/fallback_chain.h"
#include "autotune/sources/winner_gate.h"
#include "cache/database/tuning_store.h"
#include "cache/records/launch_journal.h"
#include "runtime/base/clock.h"
#include "runtime/base/settings.h"
#include "runtime/launch/config_source.h"
#include "runtime/launch/kernel_cache.h"
#include "runtime/launch/problem.h"

namespace dorajit::autotune {

class TuningConfigSource final : public launch::ConfigSource {
 public:
  // `daemon` may be null: then no daemon is used.
  TuningConfigSource(const Settings& settings, std::shared_ptr<cache::TuningStore> store,
                     Statistics& statistics, std::unique_ptr<DaemonRequests> daemon = nullptr,
                     Clock clock = std::chrono::steady_clock::now);

  launch::ConfigAnswer find(const launch::Problem& problem, device::Device& device,
                            launch::KernelCache& kernels) override;

  void set_listener(Listener listener) override;
  void close() override;

  // The sources that find() would use without tuning, down to the one that answers.
  std::vector<LookupResult> explain(const launch::Problem& problem,
                                    const device::DeviceInfo& device);

 private:
  launch::ConfigAnswer find_in(TuningSession& session, device::Device& device,
                               launch::KernelCache& kernels);
  // Tunes within the session's remaining time. An error if tuning failed or could not compare
  // configs in that time; it is logged.
  Result<launch::ConfigAnswer> tune(TuningSession& session, device::Device& device,
                                    launch::KernelCache& kernels);
  void note_failure(TuningSession& session, const TuneFailure& failure, std::int64_t now);

  // The results of `look_up`, with the best one verified on this device.
  using LookUp = std::vector<LookupResult> (*)(cache::TuningStore&, TuningSession&);
  std::vector<LookupResult> verified(LookUp look_up, TuningSession& session, device::Device& device,
                                     launch::KernelCache& kernels);

  const Settings settings_;
  const std::shared_ptr<cache::TuningStore> store_;
  Statistics& statistics_;
  const std::unique_ptr<cache::LaunchJournal> journal_;
  WinnerGate gate_;
  std::mutex tuning_;  // one tuning at a time: measurements must not disturb each other
  const std::unique_ptr<DaemonRequests> daemon_;
  const Clock clock_;  // for the budget of each problem
};

// The space that the settings select.
kernels::SpaceKind space_kind(const Settings& settings);

// One line with a newline: kernel, key, time and best config, worded as Triton's
// TRITON_PRINT_AUTOTUNING, then the measured times of the config and of the default.
std::string tuning_report(const launch::Problem& problem, const TuneResult& result, double seconds);

}  // namespace dorajit::autotune
