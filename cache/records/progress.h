// Progress reports for long work on rows or lines.
#pragma once

#include <cstdint>
#include <functional>

namespace dorajit::cache {

// Called with the amount done, from the working thread. May be empty.
using Progress = std::function<void(std::int64_t done, std::int64_t in_all)>;

inline void report(const Progress& progress, std::int64_t done, std::int64_t in_all) {
  if (progress) progress(done, in_all);
}

}  // namespace dorajit::cache
