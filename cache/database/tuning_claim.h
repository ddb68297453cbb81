// The exclusive right to tune one problem, so that no two processes or threads tune it at once.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "cache/files/file_lock.h"
#include "cache/files/trusted_directory.h"

namespace dorajit::cache {

// Held until destroyed; a killed process loses its claims. If the cache folder cannot be used,
// every claim is granted, because processes cannot coordinate.
class TuningClaim {
 public:
  // Nothing if another process or thread holds the claim for the entire `wait`.
  static std::optional<TuningClaim> acquire(const std::string& cache_dir, std::string_view device,
                                            std::string_view problem,
                                            std::chrono::milliseconds wait, const Trust& trust);

 private:
  explicit TuningClaim(std::optional<FileLock> lock) : lock_(std::move(lock)) {}

  std::optional<FileLock> lock_;
};

}  // namespace dorajit::cache
