// Answers from a lock file, without tuning (docs/lock_file.md).
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

// The lock entry of a problem with that config on this device. Builds the kernel now.
// kInvalidArgument for a config that is beyond the limits of its template here.
Result<cache::LockEntry> fingerprint_of(const launch::Problem& problem,
                                        const kernels::Config& config, device::Device& device,
                                        launch::KernelCache& kernels);

class LockedConfigSource final : public launch::ConfigSource {
 public:
  // Messages name `path`.
  LockedConfigSource(std::string path, std::span<const cache::LockEntry> entries,
                     LockedMiss on_miss);

  // A problem that is missing from the file runs its default config; a problem whose code differs
  // runs the config of the file. Both are misses, which are logged once or refused.
  launch::ConfigAnswer find(const launch::Problem& problem, device::Device& device,
                            launch::KernelCache& kernels) override;

 private:
  launch::ConfigAnswer miss(const launch::Problem& problem, launch::ConfigAnswer answer,
                            std::string_view why, std::string_view what_runs) const;

  const std::string path_;
  const LockedMiss on_miss_;
  std::map<std::pair<std::string, std::string>, cache::LockEntry>
      entries_;  // key: device and problem
};

}  // namespace dorajit::autotune
