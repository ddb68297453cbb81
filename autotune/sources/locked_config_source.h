// Answers as a lock file says, and tunes nothing (docs/lock_file.md).
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "cache/records/lock_file.h"
#include "runtime/base/settings.h"
#include "runtime/launch/config_source.h"
#include "runtime/launch/kernel_cache.h"

namespace dorajit::autotune {

// What a problem runs with that config on this device, made ready now.
Result<cache::LockEntry> fingerprint_of(const launch::Problem& problem,
                                        const kernels::Config& config, device::Device& device,
                                        launch::KernelCache& kernels);

// What keeps the problem from running as the entry says; empty: nothing does. `has_config` tells
// whether at least its config can run.
std::string why_not_as_locked(const cache::LockEntry& locked, const launch::Problem& problem,
                              device::Device& device, launch::KernelCache& kernels,
                              bool& has_config);

class LockedConfigSource final : public launch::ConfigSource {
 public:
  // `path` is what messages name.
  LockedConfigSource(std::string path, std::span<const cache::LockEntry> entries,
                     LockedMiss on_miss);

  // A problem that the file does not have runs its default config; one whose code is another than
  // it was, the config of the file. Either is a miss, which is said once, or refused.
  launch::ConfigAnswer find(const launch::Problem& problem, device::Device& device,
                            launch::KernelCache& kernels) override;

 private:
  launch::ConfigAnswer miss(const launch::Problem& problem, launch::ConfigAnswer answer,
                            std::string_view why, std::string_view what_runs) const;

  const std::string path_;
  const LockedMiss on_miss_;
  std::map<std::pair<std::string, std::string>, cache::LockEntry> entries_;  // device and problem
};

}  // namespace dorajit::autotune
