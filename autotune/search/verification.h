// Verifies that a kernel computes the right bits.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "autotune/search/scratch_operands.h"
#include "autotune/search/set_difference.h"
#include "autotune/search/tuning_session.h"
#include "cache/records/tuning_records.h"
#include "runtime/base/error.h"
#include "runtime/device/device.h"
#include "runtime/launch/kernel_cache.h"
#include "runtime/launch/problem.h"

namespace dorajit::autotune {

// The operands of one case of a verification, with what a right kernel makes of them.
class CheckedOperands {
 public:
  // In the device's memory, and compared there, if `difference` is given and three sets fit in
  // scratch_budget(); else in the host's. `difference` must outlive the object.
  static Result<std::unique_ptr<CheckedOperands>> make(device::Device& device,
                                                       const kernels::Variant& variant,
                                                       const ScratchShape& shape,
                                                       const SetDifference* difference);
  virtual ~CheckedOperands() = default;
  CheckedOperands(const CheckedOperands&) = delete;
  CheckedOperands& operator=(const CheckedOperands&) = delete;

  // The arguments of the launch to be checked.
  [[nodiscard]] kernels::LaunchArguments arguments() const { return operands_.arguments(0); }

  // Prepares the operands for a launch: whatever an earlier one wrote is gone.
  virtual Status reset() = 0;

  // The same, with other bytes in the memory of outputs that kernels only write, and between the
  // elements of inputs with strides until fill_gaps().
  Status reset_otherwise() {
    DORAJIT_TRY(reset());
    DORAJIT_TRY(operands_.fill_gaps(0, ScratchOperands::Gaps::kZeros));
    return operands_.poison(0, ScratchOperands::kOtherPoison);
  }
  Status fill_gaps() { return operands_.fill_gaps(0, ScratchOperands::Gaps::kUsual); }
  [[nodiscard]] Result<bool> keeps_gaps() const { return operands_.keeps_gaps(0); }
  // What a launch after that has left of them (ScratchOperands::leftovers()).
  [[nodiscard]] Result<std::string> leftovers() const { return operands_.leftovers(0); }

  [[nodiscard]] Result<std::vector<std::byte>> read() const { return operands_.read(0); }
  // "`out`, `sum`" for the outputs that differ between two results of read().
  [[nodiscard]] std::string name_different(std::span<const std::byte> image,
                                           std::span<const std::byte> other) const;

  // Where a launch made the operands differ from what is expected. Before anything is expected,
  // outputs are not compared and may be anything.
  virtual Result<ScratchOperands::Difference> compare(ScratchOperands::Closeness closeness) = 0;

  // The outputs that the host reference computes are expected.
  Status expect_reference();
  // The operands that were compared last are expected.
  virtual Status expect_last() = 0;

 protected:
  explicit CheckedOperands(ScratchOperands operands) : operands_(std::move(operands)) {}
  virtual Status expect(std::span<const std::byte> outputs) = 0;

  ScratchOperands operands_;
};

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
