// The engines of this process: one per tuning policy, made when it is first wanted.
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
  // The engine of the policy in force. Reads files and the environment the first time, so the
  // caller holds no GIL.
  dorajit_status current(dorajit_engine** engine, dorajit_error** error);

  // Returns the policy that was in force.
  std::int32_t exchange_policy(std::int32_t policy) { return policy_.exchange(policy); }

  // What all engines have done together.
  dorajit_status statistics(dorajit_statistics* total, dorajit_error** error) const;

  // What runs for each problem, of one engine after the other.
  dorajit_status plans(std::vector<dorajit_explanation>* found, dorajit_error** error) const;

 private:
  static constexpr std::size_t kPolicies = 3;

  std::atomic<std::int32_t> policy_{DORAJIT_TUNE_FROM_ENVIRONMENT};
  std::array<std::atomic<dorajit_engine*>, kPolicies> engines_{};
};

Engines& engines();

}  // namespace dorajit::python
