#include "autotune/search/checked_operands.h"

#include <utility>
#include <vector>

namespace dorajit::autotune {
namespace {

using Closeness = ScratchOperands::Closeness;
using Difference = ScratchOperands::Difference;

// Copies every set to the host after a launch.
class HostOperands final : public CheckedOperands {
 public:
  HostOperands(ScratchOperands operands, std::vector<std::byte> image)
      : CheckedOperands(std::move(operands)), before_(std::move(image)), expected_(before_) {}

  Status reset() override {
    if (std::exchange(is_damaged_, false)) DORAJIT_TRY(operands_.restore(0, before_));
    return operands_.poison(0);
  }

  Result<Difference> compare(Closeness closeness) override {
    DORAJIT_ASSIGN(last_, operands_.read(0));
    const Difference difference = operands_.compare(last_, expected_, closeness);
    is_damaged_ = difference == Difference::kElsewhere;
    return difference;
  }

  Status expect_last() override {
    expected_ = last_;
    return {};
  }

 private:
  Status expect(std::span<const std::byte> outputs) override {
    expected_ = operands_.with_outputs(before_, outputs);
    return {};
  }

  std::vector<std::byte> before_;    // a launch
  std::vector<std::byte> expected_;  // after it
  std::vector<std::byte> last_;      // compared
  bool is_damaged_ = false;
};

// Keeps the operands before a launch, and what is expected after it, in two more sets.
class DeviceOperands final : public CheckedOperands {
 public:
  static constexpr std::int64_t kBefore = 1;
  static constexpr std::int64_t kExpected = 2;
  static constexpr std::int64_t kSets = 3;

  DeviceOperands(ScratchOperands operands, const SetDifference& difference)
      : CheckedOperands(std::move(operands)), difference_(difference) {}

  Status reset() override { return operands_.copy(0, kBefore); }

  Result<Difference> compare(Closeness closeness) override {
    return difference_.find(operands_, 0, kExpected, closeness, usual_);
  }

  Status expect_last() override {
    DORAJIT_TRY(operands_.copy(kExpected, 0));
    return note_usual();
  }

 private:
  Status expect(std::span<const std::byte> outputs) override {
    DORAJIT_ASSIGN(const std::vector<std::byte> before, operands_.read(kBefore));
    DORAJIT_TRY(operands_.restore(kExpected, operands_.with_outputs(before, outputs)));
    return note_usual();
  }

  Status note_usual() {
    DORAJIT_ASSIGN(usual_, operands_.usual_sizes(kExpected));
    return {};
  }

  const SetDifference& difference_;
  // Sizes of the expected elements, by operand.
  std::vector<double> usual_ = std::vector<double>(kernels::kMaxOperands);
};

// Whether all sets fit in a budget for scratch operands: a training run may need the rest.
bool has_room(device::Device& device, const kernels::Variant& variant, const ScratchShape& shape) {
  const auto budget = scratch_budget(0, device);
  return budget && DeviceOperands::kSets * ScratchOperands::bytes_per_set(
                                               variant, shape, device.info().traits.kind) <=
                       *budget;
}

}  // namespace

Result<std::unique_ptr<CheckedOperands>> CheckedOperands::make(device::Device& device,
                                                               const kernels::Variant& variant,
                                                               const ScratchShape& shape,
                                                               const SetDifference* difference) {
  if (difference != nullptr && has_room(device, variant, shape)) {
    ScratchShape of_all = shape;
    of_all.sets = DeviceOperands::kSets;
    auto operands = ScratchOperands::make(device, variant, of_all);
    if (operands) return std::make_unique<DeviceOperands>(*std::move(operands), *difference);
    if (operands.error().code != StatusCode::kOutOfMemory) {
      return std::unexpected(operands.error());
    }
  }
  DORAJIT_ASSIGN(ScratchOperands operands, ScratchOperands::make(device, variant, shape));
  DORAJIT_ASSIGN(std::vector<std::byte> image, operands.read(0));
  return std::make_unique<HostOperands>(std::move(operands), std::move(image));
}

Status CheckedOperands::expect_reference() {
  DORAJIT_ASSIGN(const std::vector<std::byte> outputs, operands_.reference_outputs(0));
  return expect(outputs);
}

}  // namespace dorajit::autotune
