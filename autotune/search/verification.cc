#include "autotune/search/verification.h"

#include <format>
#include <string>
#include <utility>

#include "kernel_templates/template.h"

namespace dorajit::autotune {
namespace {

constexpr std::size_t kGuardBytes = 4096;
constexpr std::uint64_t kFirstSeed = 11;

}  // namespace

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
                             .seed = seed++,
                             .guard_bytes = kGuardBytes};
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
  using Difference = ScratchOperands::Difference;
  DORAJIT_TRY(one.operands->reset_otherwise());
  DORAJIT_TRY(launch(standard, one));
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
  // If the outputs differ without that, too, they vary by themselves, as check() will find.
  DORAJIT_TRY(one.operands->reset());
  DORAJIT_TRY(launch(standard, one));
  DORAJIT_ASSIGN(const Difference again, one.operands->compare(one.closeness));
  if (again != Difference::kNone) return {};
  return fail(StatusCode::kUnsupported,
              std::format("{} reads an output before it writes it, so that no other config can be "
                          "compared with the default one; describe the tensor as \"inout\"",
                          name));
}

Result<cache::Verdict> Verifier::run_cases(const launch::ReadyKernel& kernel,
                                           const JournalPlace& place, bool defines_reference) {
  using Difference = ScratchOperands::Difference;
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
