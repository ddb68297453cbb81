// Verifies winners that this machine has not measured before they are used.
#pragma once

#include <mutex>

#include "autotune/search/tuning_session.h"
#include "cache/artifacts/artifact_files.h"
#include "cache/database/tuning_store.h"
#include "cache/records/launch_journal.h"
#include "runtime/base/settings.h"
#include "runtime/device/device.h"
#include "runtime/launch/kernel_cache.h"

namespace dorajit::autotune {

// A winner that was imported, shipped, or measured on another device or machine is run on scratch
// operands and compared with the host reference, bit for bit, before its first use: once per
// machine, device, driver, compiler, kernel templates, problem and config. Thread-safe.
class WinnerGate {
 public:
  // References to the store and the journal are kept.
  WinnerGate(const Settings& settings, cache::TuningStore& store, cache::LaunchJournal& journal);

  // Whether the winner may be used for the problem. Verifies it now if that has not happened on
  // this machine, and if the session has time left. A config that misbehaves is recorded as a bad
  // trial.
  bool admits(const cache::Winner& winner, TuningSession& session, device::Device& device,
              launch::KernelCache& kernels);

  // Records that the config was verified on the device during a tuning.
  void remember(const kernels::Config& config, const TuningSession& session,
                launch::KernelCache& kernels);

 private:
  enum class Finding {
    kRight,
    kNotRun,  // a built-in kernel was used instead, so the config was not tested
    kRefused,
  };

  Finding verify(const kernels::Config& config, const TuningSession& session,
                 device::Device& device, launch::KernelCache& kernels);
  void condemn(const kernels::Config& config, cache::Verdict verdict, const TuningSession& session);

  cache::TuningStore& store_;
  cache::LaunchJournal& journal_;
  // A note under the key of each config that was verified on this machine.
  cache::ArtifactFiles notes_;
  std::mutex verifying_;
};

}  // namespace dorajit::autotune
