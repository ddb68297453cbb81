// The right to tune one problem, so that no two processes or threads do the same work.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "cache/files/file_lock.h"
#include "cache/files/trusted_directory.h"

namespace dorajit::cache {

// Held until destroyed; a killed process loses its claims. Where the cache folder cannot be used a
// claim is granted to everyone, as there is nobody to agree with.
class TuningClaim {
 public:
  // Nothing when another holds the claim for all of `wait`.
  static std::optional<TuningClaim> acquire(const std::string& cache_dir, std::string_view device,
                                            std::string_view problem,
                                            std::chrono::milliseconds wait, const Trust& trust);

 private:
  explicit TuningClaim(std::optional<FileLock> lock) : lock_(std::move(lock)) {}

  std::optional<FileLock> lock_;
};

}  // namespace dorajit::cache
