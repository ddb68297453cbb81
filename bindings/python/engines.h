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

  // The engines that exist by now.
  [[nodiscard]] std::vector<const dorajit_engine*> created() const;

 private:
  static constexpr std::size_t kPolicies = 3;

  std::atomic<std::int32_t> policy_{DORAJIT_TUNE_FROM_ENVIRONMENT};
  std::array<std::atomic<dorajit_engine*>, kPolicies> engines_{};
};

Engines& engines();

}  // namespace dorajit::python
