// Which configs were seen to compute the right bits here (docs/tuning.md).
#pragma once

#include <string>
#include <string_view>

#include "cache/files/trusted_directory.h"
#include "runtime/base/log.h"

namespace dorajit::cache {

// One empty file for each in `cache_dir`/verified. Unlike trials they are neither exported nor
// imported: they say something of this machine only. Thread-safe, shared by any number of
// processes, usable in a forked child. No call fails: what cannot be remembered is verified again.
class VerifiedConfigs {
 public:
  // An empty `cache_dir` remembers nothing, nor does one that others may write (docs/security.md).
  VerifiedConfigs(const std::string& cache_dir, const Trust& trust);

  // `key` is a digest of everything that a verification depends on.
  [[nodiscard]] bool contains(std::string_view key) const;
  void add(std::string_view key) const;

 private:
  [[nodiscard]] Status create(std::string_view key) const;
  void complain(LogLevel level, const Error& error) const;

  std::string cache_dir_;  // empty: nothing is remembered
  Trust trust_;
};

}  // namespace dorajit::cache
