#include "autotune/verification.h"

#include <algorithm>

namespace dorajit::autotune {
namespace {

// Enough rows for two programs of the tallest config and a rest, few enough for the host reference.
constexpr std::int64_t kRows = 35;
constexpr std::int64_t kReferenceElements = 1 << 20;

}  // namespace

Result<Verifier> Verifier::make(const launch::Problem& problem, device::Device& device) {
  Verifier verifier(device);
  const std::int64_t rows =
      std::clamp<std::int64_t>(kReferenceElements / problem.num_cols, 1, kRows);
  const std::int64_t ragged_cols = problem.num_cols > 3 ? problem.num_cols - 3 : problem.num_cols;
  for (const ScratchShape& shape :
       {ScratchShape{.rows = rows, .cols = problem.num_cols, .seed = 11},
        ScratchShape{.rows = rows, .cols = problem.num_cols, .seed = 12},
        ScratchShape{
            .rows = std::max<std::int64_t>(1, rows / 2), .cols = ragged_cols, .seed = 13}}) {
    ScratchShape aligned = shape;
    aligned.vector_width = problem.vector_width;
    DORAJIT_ASSIGN(ScratchOperands operands,
                   ScratchOperands::make(device, problem.variant, aligned));
    DORAJIT_ASSIGN(std::vector<std::byte> expected, operands.reference_outputs(0));
    verifier.cases_.push_back({std::move(operands), std::move(expected)});
  }
  return verifier;
}

Result<bool> Verifier::check(const launch::ReadyKernel& kernel) {
  for (Case& one : cases_) {
    DORAJIT_TRY(one.operands.poison(0));
    DORAJIT_TRY(device_->launch(*kernel.kernel, kernel.config, one.operands.arguments(0),
                                device_->own_stream()));
    DORAJIT_TRY(device_->synchronize(device_->own_stream()));
    DORAJIT_ASSIGN(const std::vector<std::byte> outputs, one.operands.read_outputs(0));
    if (outputs != one.expected) return false;
  }
  return true;
}

}  // namespace dorajit::autotune
