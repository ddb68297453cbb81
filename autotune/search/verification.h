// Verifies that a kernel computes the right bits.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "autotune/search/checked_operands.h"
#include "autotune/search/journal_entry.h"
#include "autotune/search/scratch_operands.h"
#include "autotune/search/set_difference.h"
#include "cache/records/tuning_records.h"
#include "runtime/base/error.h"
#include "runtime/launch/kernel_cache.h"
#include "runtime/launch/problem.h"

namespace dorajit::autotune {

// Small inputs with a problem's columns (at most about 2^20) and alignment class, and the bits that
// the operation must compute from them: two seeds on several rows, a ragged shape whose last vector
// and last block are incomplete, and, for sums, shapes with several partial sums. The reference is
// the host's, which the default config must match first; if the operation has no host reference,
// the outputs of the default config are the reference.
class Verifier {
 public:
  // Computes the reference, which takes tens of milliseconds. An error if there is not enough
  // memory, or if `is_over`, which is asked before each case, says that there is no time left.
  // `difference`, if it is not null, compares the outputs; otherwise the host compares copies,
  // which takes about a second for each GiB.
  static Result<Verifier> make(const launch::Problem& problem, device::Device& device,
                               std::unique_ptr<const SetDifference> difference = nullptr,
                               const std::function<bool()>& is_over = {});

  // If the operation has a tolerance, the first kernel within it of the host reference defines the
  // bits that the others must give. Without a host reference define_reference() must come first,
  // and kernels must be within the tolerance of that. Cases whose sizes the config does not fit are
  // skipped.
  //
  // Runs the kernel on poisoned outputs, each run entered in the journal at `place`. kOk if every
  // byte is right, including untouched padding between rows; kWrongBits if not; kOutOfBounds if it
  // wrote an input, or before or after an operand or the workspace. An error if it cannot be
  // launched.
  Result<cache::Verdict> check(const launch::ReadyKernel& kernel, const JournalPlace& place = {});

  // Makes the outputs of the default config's kernel the reference, if the operation has no host
  // reference; else does nothing. kOk, kOutOfBounds or an error as check(). An error also if the
  // default config fits none of the cases, or leaves or reads parts of an output that kernels only
  // write.
  Result<cache::Verdict> define_reference(const launch::ReadyKernel& standard);

 private:
  struct Case {
    std::unique_ptr<CheckedOperands> operands;
    ScratchOperands::Closeness closeness;
    bool is_known = true;  // whether the operands know the reference outputs
    kernels::Sizes sizes{};
  };

  explicit Verifier(device::Device& device) : device_(&device) {}

  // Whether the config of the kernel fits the sizes of the case.
  [[nodiscard]] bool fits(const launch::ReadyKernel& kernel, const Case& one) const;
  Result<cache::Verdict> run_cases(const launch::ReadyKernel& kernel, const JournalPlace& place,
                                   bool defines_reference);

  // An error if the outputs of the default config depend on what was in their memory before.
  Status check_written(const launch::ReadyKernel& standard, Case& one);
  Status launch(const launch::ReadyKernel& kernel, const Case& one);

  device::Device* device_;
  std::unique_ptr<const SetDifference> difference_;  // that the cases use
  std::vector<Case> cases_;
};

}  // namespace dorajit::autotune
