// Configs that the user has pinned to problems (docs/lock_file.md).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/files/trusted_directory.h"
#include "cache/records/lock_file.h"
#include "kernel_templates/config.h"
#include "runtime/base/error.h"

namespace dorajit::cache {

// The lock file `pins.jsonl` of a cache folder. Every call reads it again, so a change holds
// from the next look-up of any process on. Thread-safe, and any number of processes may share the
// folder.
class PinnedConfigs {
 public:
  // With an empty `cache_dir` there are none, and none can be added.
  PinnedConfigs(const std::string& cache_dir, const Trust& trust)
      : cache_dir_(cache_dir), trust_(trust) {}

  // Ordered by device and problem. An error for a file that cannot be used.
  [[nodiscard]] Result<std::vector<LockEntry>> read() const;

  // A file that cannot be used has none, and a warning says so once.
  [[nodiscard]] std::optional<kernels::Config> find(std::string_view device,
                                                    std::string_view problem) const;

  // Adds the entry in place of an earlier one of its problem. An error where it is not kept.
  [[nodiscard]] Status add(const LockEntry& entry) const;
  // Whether there was one.
  [[nodiscard]] Result<bool> remove(std::string_view device, std::string_view problem) const;

 private:
  [[nodiscard]] Status change(const std::function<void(std::vector<LockEntry>&)>& edit) const;

  const std::string cache_dir_;
  const Trust trust_;
};

}  // namespace dorajit::cache
