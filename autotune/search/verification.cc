#include "autotune/search/verification.h"

#include <algorithm>
#include <format>
#include <string>
#include <utility>
#include <vector>

#include "kernel_templates/template.h"

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

bool has_strides(const kernels::Variant& variant) {
  return std::ranges::any_of(variant.operation->operands, [](const kernels::Operand& operand) {
    return !operand.shape.strides.empty();
  });
}

constexpr std::size_t kGuardBytes = 4096;
constexpr std::uint64_t kFirstSeed = 11;

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

std::string CheckedOperands::name_different(std::span<const std::byte> image,
                                            std::span<const std::byte> other) const {
  std::string names;
  for (const ScratchOperands::Part& part : operands_.parts()) {
    const auto of_part = [&](auto bytes) { return bytes.subspan(part.offset, part.bytes); };
    if (!part.output || std::ranges::equal(of_part(image), of_part(other))) continue;
    const kernels::Operand& operand = operands_.variant().operation->operands[*part.output];
    names += std::format("{}`{}`", names.empty() ? "" : ", ", operand.name);
  }
  return names;
}

Result<Verifier> Verifier::make(const launch::Problem& problem, device::Device& device,
                                std::unique_ptr<const SetDifference> difference,
                                const std::function<bool()>& is_over) {
  Verifier verifier(device);
  verifier.difference_ = std::move(difference);
  std::uint64_t seed = kFirstSeed;
  for (const kernels::Sizes& sizes :
       kernels::template_of(problem.variant)
           .verification_sizes(problem.variant, problem.largest_sizes())) {
    const ScratchShape shape{.sizes = sizes,
                             .vector_width = problem.vector_width,
                             .seed = seed,
                             .guard_bytes = kGuardBytes,
                             .misaligns = seed % 2 == kFirstSeed % 2};
    ++seed;
    if (is_over && is_over()) {
      return fail(StatusCode::kUnsupported, "there was no time left for it");
    }
    DORAJIT_ASSIGN(auto operands, CheckedOperands::make(device, problem.variant, shape,
                                                        verifier.difference_.get()));
    const bool is_known = problem.variant.operation->reference != nullptr;
    if (is_known) DORAJIT_TRY(operands->expect_reference());
    const auto closeness = problem.variant.operation->tolerance > 0
                               ? ScratchOperands::Closeness::kWithinTolerance
                               : ScratchOperands::Closeness::kBitForBit;
    verifier.cases_.push_back({std::move(operands), closeness, is_known, sizes});
  }
  return verifier;
}

bool Verifier::fits(const launch::ReadyKernel& kernel, const Case& one) const {
  const kernels::Variant& variant = kernel.kernel->variant();
  const kernels::Template& used = kernels::template_of(variant);
  return !used.fits_by_call ||
         used.why_config_does_not_fit(variant, device_->info().traits, one.sizes, kernel.config)
             .empty();
}

Result<cache::Verdict> Verifier::check(const launch::ReadyKernel& kernel,
                                       const JournalPlace& place) {
  return run_cases(kernel, place, /*defines_reference=*/false);
}

Result<cache::Verdict> Verifier::define_reference(const launch::ReadyKernel& standard) {
  if (standard.kernel->variant().operation->reference != nullptr) return cache::Verdict::kOk;
  DORAJIT_ASSIGN(const cache::Verdict verdict, run_cases(standard, {}, /*defines_reference=*/true));
  if (verdict != cache::Verdict::kOk) return verdict;
  std::erase_if(cases_, [](const Case& one) { return !one.is_known; });
  if (!cases_.empty()) return verdict;
  return fail(StatusCode::kUnsupported,
              "the default config, with which others are compared, does not fit the sizes");
}

Status Verifier::launch(const launch::ReadyKernel& kernel, const Case& one) {
  DORAJIT_TRY(device_->launch(*kernel.kernel, kernel.config, one.operands->arguments(),
                              device_->own_stream()));
  return device_->synchronize(device_->own_stream());
}

Status Verifier::check_written(const launch::ReadyKernel& standard, Case& one) {
  DORAJIT_TRY(one.operands->reset_otherwise());
  DORAJIT_TRY(launch(standard, one));
  DORAJIT_TRY(one.operands->fill_gaps());
  DORAJIT_ASSIGN(const Difference difference, one.operands->compare(one.closeness));
  if (difference != Difference::kOutputs) return {};
  DORAJIT_ASSIGN(const std::string left, one.operands->leftovers());
  const std::string name = to_text(standard.kernel->variant());
  if (!left.empty()) {
    return fail(StatusCode::kUnsupported,
                std::format("{} does not write all of its outputs, so that no other config can be "
                            "compared with the default one: {} are left as they were; write them, "
                            "or describe the tensor as \"inout\"",
                            name, left));
  }
  DORAJIT_ASSIGN(const std::vector<std::byte> otherwise, one.operands->read());
  // If the outputs differ without that, too, they vary by themselves, as check() will find.
  DORAJIT_TRY(one.operands->reset());
  DORAJIT_TRY(launch(standard, one));
  DORAJIT_ASSIGN(const Difference again, one.operands->compare(one.closeness));
  if (again != Difference::kNone) return {};
  DORAJIT_ASSIGN(const std::vector<std::byte> usual, one.operands->read());
  return fail(StatusCode::kUnsupported,
              std::format("{} reads an output before it writes it, so that no other config can be "
                          "compared with the default one: {} depends on what was in its memory; "
                          "describe the tensor as \"inout\"{}",
                          name, one.operands->name_different(otherwise, usual),
                          has_strides(standard.kernel->variant())
                              ? ", or, if it reads what lies between the elements of a tensor with "
                                "strides, let it use these strides"
                              : ""));
}

Result<cache::Verdict> Verifier::run_cases(const launch::ReadyKernel& kernel,
                                           const JournalPlace& place, bool defines_reference) {
  const bool shares_memory = device_->info().traits.kind == kernels::DeviceKind::kCpu;
  const bool has_host_reference = kernel.kernel->variant().operation->reference != nullptr;
  for (Case& one : cases_) {
    if (!fits(kernel, one)) continue;
    if (!one.is_known && !defines_reference) {
      return fail(StatusCode::kInternal, "a kernel is verified without a reference");
    }
    DORAJIT_TRY(one.operands->reset());
    // Entered only while the kernel runs: if the process is killed at another time, the config must
    // not be blamed.
    auto entry = place.enter();
    DORAJIT_TRY(launch(kernel, one));
    // Damage that a kernel did to the process's memory may show only after the kernel has ended.
    if (!shares_memory) entry.reset();
    DORAJIT_ASSIGN(const Difference difference, one.operands->compare(one.closeness));
    entry.reset();
    if (defines_reference && difference != Difference::kElsewhere) {
      DORAJIT_ASSIGN(const bool keeps_gaps, one.operands->keeps_gaps());
      if (!keeps_gaps) return cache::Verdict::kOutOfBounds;
      DORAJIT_TRY(one.operands->expect_last());
      one.is_known = true;
      DORAJIT_TRY(check_written(kernel, one));
      continue;
    }
    if (difference == Difference::kNone) {
      if (has_host_reference && one.closeness == ScratchOperands::Closeness::kWithinTolerance) {
        DORAJIT_TRY(one.operands->expect_last());
        one.closeness = ScratchOperands::Closeness::kBitForBit;
      }
      continue;
    }
    return difference == Difference::kOutputs ? cache::Verdict::kWrongBits
                                              : cache::Verdict::kOutOfBounds;
  }
  return cache::Verdict::kOk;
}

}  // namespace dorajit::autotune
