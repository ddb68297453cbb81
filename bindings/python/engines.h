// The engines of this process: one per tuning policy, created when first used.
#pragma once

#include <dorajit/dorajit.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

namespace dorajit::python {

// Thread-safe. An engine is never destroyed: at the end of a process, threads and CUDA graphs may
// still use it while destructors run.
class Engines {
 public:
  // The engine of the current policy. The first call reads files and the environment, so the caller
  // must not hold the GIL.
  dorajit_status current(dorajit_engine** engine, dorajit_error** error);

  // Sets the policy and returns the previous one.
  std::int32_t exchange_policy(std::int32_t policy) { return policy_.exchange(policy); }

  // The sums of the counters of all engines.
  dorajit_status statistics(dorajit_statistics* total, dorajit_error** error) const;

  // The plans of all engines, one engine after the other.
  dorajit_status plans(std::vector<dorajit_explanation>* found, dorajit_error** error) const;

 private:
  static constexpr std::size_t kPolicies = 3;

  std::atomic<std::int32_t> policy_{DORAJIT_TUNE_FROM_ENVIRONMENT};
  std::array<std::atomic<dorajit_engine*>, kPolicies> engines_{};
};

Engines& engines();

}  // namespace dorajit::python
