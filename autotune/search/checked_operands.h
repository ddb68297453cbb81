// The operands of one case of a verification, with what a right kernel makes of them.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "autotune/search/scratch_operands.h"
#include "autotune/search/set_difference.h"
#include "runtime/base/error.h"
#include "runtime/device/device.h"

namespace dorajit::autotune {

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

  // The same, with other bytes in the memory of outputs that kernels only write.
  Status reset_otherwise() {
    DORAJIT_TRY(reset());
    return operands_.poison(0, ScratchOperands::kOtherPoison);
  }
  // What a launch after that has left of them (ScratchOperands::leftovers()).
  [[nodiscard]] Result<std::string> leftovers() const { return operands_.leftovers(0); }

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

}  // namespace dorajit::autotune
