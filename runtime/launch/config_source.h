// Where the config of a problem comes from. The runtime sees this interface only.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "kernel_templates/config.h"
#include "runtime/base/error.h"
#include "runtime/device/device.h"
#include "runtime/launch/problem.h"

namespace dorajit::launch {

class KernelCache;

// The source of the fallback chain that an answer stands on.
enum class ConfigOrigin {
  kLocked,           // the lock file says so
  kTuned,            // tuned just now, by this process
  kUserDatabase,     // found in the tuning database
  kShippedDatabase,  // found in a database that came with the installation
  kNearestShape,     // the winner of the shape most like it, on the same device
  kNearestDevice,    // its winner on the device most like this one
  kDefault,          // nothing is known
};

std::string_view name(ConfigOrigin origin);

struct ConfigAnswer {
  kernels::Config config;
  ConfigOrigin origin = ConfigOrigin::kDefault;
  double median_ns = 0;          // of the config when it was measured; 0 if it never was
  double default_median_ns = 0;  // of the default config in the same measurement
  int trials = 0;                // configs measured for this answer by this process
  // Counts the launches of what awaits a better answer; else null.
  std::shared_ptr<std::atomic<std::int64_t>> launches{};
  // Why the problem may not run at all, in a process that is locked; the rest then means nothing.
  std::optional<Error> refusal{};
};

// Implementations are thread-safe.
class ConfigSource {
 public:
  virtual ~ConfigSource() = default;

  // Never fails: what cannot be found out is answered with the default config. May take as long as
  // the tuning budget allows.
  virtual ConfigAnswer find(const Problem& problem, device::Device& device,
                            KernelCache& kernels) = 0;

  // Told of each problem to which find() has a better answer than before, from a thread of the
  // source's own, until the source is closed. Set before the first call of find().
  using Listener = std::function<void(const Problem& problem, device::Device& device)>;
  virtual void set_listener(Listener) {}

  // Called before the source is destroyed, when find() is called by its listener at most: ends its
  // thread.
  virtual void close() {}
};

// Answers every problem with its default config.
class DefaultConfigs final : public ConfigSource {
 public:
  ConfigAnswer find(const Problem& problem, device::Device& device, KernelCache&) override;
};

}  // namespace dorajit::launch
