// Records which configs computed the right bits on this machine (docs/tuning.md).
#pragma once

#include <string>
#include <string_view>

#include "cache/files/trusted_directory.h"
#include "runtime/base/log.h"

namespace dorajit::cache {

// Stores one empty file for each in `cache_dir`/verified. Unlike trials, they are neither exported
// nor imported, because they apply only to this machine. Thread-safe, shared by any number of
// processes, usable in a forked child. No call fails: a config that cannot be recorded is verified
// again.
class VerifiedConfigs {
 public:
  // With an empty `cache_dir`, or one that others may write (docs/security.md), nothing is stored.
  VerifiedConfigs(const std::string& cache_dir, const Trust& trust);

  // `key` is a digest of everything that a verification depends on.
  [[nodiscard]] bool contains(std::string_view key) const;
  void add(std::string_view key) const;

 private:
  [[nodiscard]] Status create(std::string_view key) const;
  void complain(LogLevel level, const Error& error) const;

  std::string cache_dir_;  // empty: nothing is stored
  Trust trust_;
};

}  // namespace dorajit::cache
