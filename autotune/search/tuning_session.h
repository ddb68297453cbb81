// The data that the fallback chain, the winner gate, the tuner and the recording share for one
// problem on one device.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/database/tuning_store.h"
#include "cache/records/launch_journal.h"
#include "cache/records/tuning_records.h"
#include "kernel_templates/config.h"
#include "kernel_templates/spaces.h"
#include "runtime/base/clock.h"
#include "runtime/device/device.h"
#include "runtime/launch/problem.h"

namespace dorajit::autotune {

// Version of this library's measurements; a change makes earlier winners stale.
inline constexpr const char* kTunerVersion = "2";
inline constexpr const char* kMeasurementPolicy = "cold-cache tournament/2";

// Created once for each problem that is looked up or tuned. Enumerates the space, and hashes the
// space and the templates. Keeps references to the problem and the device.
struct TuningSession {
  TuningSession(const launch::Problem& tuned_problem, const device::DeviceInfo& tuned_device,
                kernels::SpaceKind kind, Clock clock = std::chrono::steady_clock::now);

  [[nodiscard]] const kernels::Config& default_config() const { return space.front(); }
  // With one config there is nothing to tune.
  [[nodiscard]] bool has_choice() const { return space.size() > 1; }
  // Adds those that are not quarantined yet.
  void quarantine(const std::vector<kernels::Config>& configs);

  const launch::Problem& problem;
  const device::DeviceInfo& device;
  const kernels::SpaceKind space_kind;
  const Clock now;  // for all budgets of the session
  const std::string problem_text;
  const std::vector<kernels::Config> space;  // the default first
  const cache::Environment environment;      // of a measurement made now
  // Identifies what decides whether a config is good or bad, except the config: device, variant,
  // templates.
  const std::string scope;

  // The remaining time for verifying winners that this machine has not measured, and for tuning. At
  // zero, only winners that were verified before are used, and nothing is tuned.
  Seconds time_left{0};
  // How long a lookup may wait for the database.
  cache::LockWait lock_wait = cache::LockWait::kShort;
  // What the user's database says of the problem, once a lookup has read it.
  std::optional<cache::TuningStore::History> history{};
  std::vector<kernels::Config> quarantined{};  // by any lookup so far: must not be tried again
  std::vector<kernels::Config> rejected{};     // could not be verified; never used as answers
};

// Subtracts its lifetime from the session's remaining time.
class TimeSpent {
 public:
  explicit TimeSpent(TuningSession& session) : session_(session) {}
  ~TimeSpent() { session_.time_left -= passed(); }
  TimeSpent(const TimeSpent&) = delete;
  TimeSpent& operator=(const TimeSpent&) = delete;

  [[nodiscard]] Seconds passed() const { return session_.now() - start_; }

 private:
  TuningSession& session_;
  const Moment start_ = session_.now();
};

// The configs that the trials quarantine for the session's variant on its device, without
// duplicates. Trials of other devices, variants and templates are ignored.
std::vector<kernels::Config> quarantined_configs(std::span<const cache::Trial> trials,
                                                 const TuningSession& session);

// The first 12 digits of a hash of the machine's name: the same for every user and process of the
// machine. It distinguishes runs of different machines without storing the name.
std::string host_id();
std::string host_id(std::string_view name);

// Where a config is entered in the launch journal while its kernel may crash or hang the process.
struct JournalPlace {
  cache::LaunchJournal* journal = nullptr;  // null: nothing is entered
  std::string_view scope{};
  std::string_view problem{};
  kernels::Config config{};

  // Entered until the result, which may be null, is destroyed.
  [[nodiscard]] std::unique_ptr<cache::LaunchJournal::Entry> enter() const {
    return journal != nullptr ? journal->enter(scope, problem, config) : nullptr;
  }
};

}  // namespace dorajit::autotune
