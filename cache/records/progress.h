// How far work on many rows or lines has come, for whoever shows it.
#pragma once

#include <cstdint>
#include <functional>

namespace dorajit::cache {

// Called with what is done so far, from the thread that works; may be empty.
using Progress = std::function<void(std::int64_t done, std::int64_t in_all)>;

inline void report(const Progress& progress, std::int64_t done, std::int64_t in_all) {
  if (progress) progress(done, in_all);
}

}  // namespace dorajit::cache
