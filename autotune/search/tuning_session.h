// What the fallback chain, the gate, the tuner and the record share of one problem on one device.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "cache/database/tuning_store.h"
#include "kernel_templates/spaces.h"
#include "runtime/device/device.h"
#include "runtime/launch/problem.h"

namespace dorajit::autotune {

// What a measurement of this library means; a change makes earlier winners stale.
inline constexpr const char* kTunerVersion = "2";
inline constexpr const char* kMeasurementPolicy = "cold-cache tournament/2";

using Seconds = std::chrono::duration<double>;

// Made once per problem that is looked up or tuned: enumerates the space and hashes it and the
// templates. Refers to the problem and the device.
struct TuningSession {
  TuningSession(const launch::Problem& tuned_problem, const device::DeviceInfo& tuned_device,
                kernels::SpaceKind kind);

  [[nodiscard]] const kernels::Config& default_config() const { return space.front(); }

  const launch::Problem& problem;
  const device::DeviceInfo& device;
  const kernels::SpaceKind space_kind;
  const std::string problem_text;
  const std::vector<kernels::Config> space;  // the default first
  const cache::Environment environment;      // of a measurement made now
  // What a config's being good or bad depends on, beside the config: device, variant and templates.
  const std::string scope;

  // What is left of the time for verifying winners that this machine has not measured and for
  // tuning, all together. Without any only those serve that were verified before, and nothing is
  // tuned.
  Seconds time_left{0};
  // How long a look-up may wait for the database.
  cache::LockWait patience = cache::LockWait::kShort;
  std::vector<kernels::Config> quarantined{};  // by any look-up so far: not to be tried again
  std::vector<kernels::Config> rejected{};     // could not be verified; answer nowhere
};

// Takes the time that passes while it lives from what the session has left.
class TimeSpent {
 public:
  explicit TimeSpent(TuningSession& session) : session_(session) {}
  ~TimeSpent() { session_.time_left -= passed(); }
  TimeSpent(const TimeSpent&) = delete;
  TimeSpent& operator=(const TimeSpent&) = delete;

  [[nodiscard]] Seconds passed() const { return std::chrono::steady_clock::now() - start_; }

 private:
  TuningSession& session_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace dorajit::autotune
