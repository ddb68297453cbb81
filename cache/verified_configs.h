// Which configs were seen to compute the right bits here (docs/tuning.md).
#pragma once

#include <string>
#include <string_view>

namespace dorajit::cache {

// One empty file for each in `cache_dir`/verified. Unlike trials they are neither exported nor
// imported: they say something of this machine only. Thread-safe, shared by any number of
// processes, usable in a forked child. No call fails: what cannot be remembered is verified again.
class VerifiedConfigs {
 public:
  // An empty `cache_dir` remembers nothing.
  explicit VerifiedConfigs(const std::string& cache_dir);

  // `key` is a digest of everything that a verification depends on.
  [[nodiscard]] bool contains(std::string_view key) const;
  void add(std::string_view key) const;

 private:
  std::string directory_;  // empty: nothing is remembered
};

}  // namespace dorajit::cache
