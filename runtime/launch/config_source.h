// Interface for finding the config of a problem. The runtime uses only this.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernel_templates/config.h"
#include "runtime/base/error.h"
#include "runtime/device/device.h"
#include "runtime/launch/problem.h"

namespace dorajit::launch {

class KernelCache;

// The source of the fallback chain that gave an answer.
enum class ConfigOrigin {
  kLocked,           // the lock file
  kPinned,           // the user's pin
  kTuned,            // tuned by this process
  kUserDatabase,     // the tuning database
  kShippedDatabase,  // a database that came with the installation
  kNearestShape,     // the winner of the most similar shape, on the same device
  kNearestDevice,    // the winner of the same problem on the most similar device
  kDefault,          // no winner is known
};

constexpr std::string_view name(ConfigOrigin origin) {
  constexpr std::string_view kNames[] = {"locked",         "pinned",           "tuned",
                                         "user database",  "shipped database", "nearest shape",
                                         "nearest device", "default"};
  static_assert(std::size(kNames) == std::to_underlying(ConfigOrigin::kDefault) + 1);
  return kNames[std::to_underlying(origin)];
}

// Whether the config was chosen for this very problem, and not for a neighbour or for any.
constexpr bool is_exact(ConfigOrigin origin) { return origin < ConfigOrigin::kNearestShape; }

struct ConfigAnswer {
  kernels::Config config;
  ConfigOrigin origin = ConfigOrigin::kDefault;
  double median_ns = 0;          // of the config when it was measured; 0 if it never was
  double default_median_ns = 0;  // of the default config in the same measurement
  int trials = 0;                // configs measured for this answer by this process
  bool is_only = false;          // the problem has no other config, so there is nothing to tune
  // Where a config may not fit a call of the problem: others of the same measurement, the fastest
  // first.
  std::vector<kernels::Config> runners_up{};
  std::string why_untuned{};  // why tuning gave no winner; empty if it was not tried or did
  // Counts the launches of a config that may be replaced by a better one; else null.
  std::shared_ptr<std::atomic<std::int64_t>> launches{};
  // Why the problem must not run in a process with a lock file; the other fields are then
  // unspecified.
  std::optional<Error> refusal{};
};

// Implementations are thread-safe.
class ConfigSource {
 public:
  virtual ~ConfigSource() = default;

  // Never fails: if nothing is known, the answer is the default config. May take as long as the
  // tuning budget.
  virtual ConfigAnswer find(const Problem& problem, device::Device& device,
                            KernelCache& kernels) = 0;

  // Called, from a thread of the source, for each problem to which find() now has a better answer,
  // until the source is closed. Set before the first call of find().
  using Listener = std::function<void(const Problem& problem, device::Device& device)>;
  virtual void set_listener(Listener) {}

  // Called before the source is destroyed, when only its own listener may still call find(). Ends
  // its thread.
  virtual void close() {}
};

}  // namespace dorajit::launch
