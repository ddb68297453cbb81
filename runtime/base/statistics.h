// Counts of an engine's work. A test or a user can check with them that something did not happen.
#pragma once

#include <atomic>
#include <cstdint>

namespace dorajit {

struct Statistics {
  std::atomic<std::int64_t> launches{0};         // kernels launched for callers
  std::atomic<std::int64_t> compilations{0};     // compiler runs that produced an artifact
  std::atomic<std::int64_t> artifact_hits{0};    // artifacts taken from the store
  std::atomic<std::int64_t> builtin_kernels{0};  // kernels that are compiled into the library
  std::atomic<std::int64_t> tuned_problems{0};
  std::atomic<std::int64_t> trials{0};         // configs measured
  std::atomic<std::int64_t> renewed_plans{0};  // plans whose config or source changed later
};

}  // namespace dorajit
