#include "kernel_templates/templates/verified_matrices.h"

#include <algorithm>

#include "kernel_templates/sizes.h"
#include "kernel_templates/templates/streaming_configs.h"

namespace dorajit::kernels {
namespace {

// Enough rows for two programs of the tallest elementwise config and a remainder, but few enough
// for the host reference.
constexpr std::int64_t kVerifiedRows = 2 * kTallestElementwiseProgram + 12;

// Longer rows are cut to this, with the same end within a vector or block of any config.
constexpr std::int64_t kMaxCols = kReferenceElements;
constexpr std::int64_t kWidestBlock = 1 << 16;

}  // namespace

std::vector<Sizes> verified_matrices(const Variant& variant, const Sizes& problem) {
  const std::int64_t num_cols = problem[kCols];
  const std::int64_t cols = num_cols <= kMaxCols ? num_cols : kMaxCols + num_cols % kWidestBlock;
  const std::int64_t rows = std::clamp<std::int64_t>(kReferenceElements / cols, 1, kVerifiedRows);
  const std::int64_t ragged_cols = cols > 3 ? cols - 3 : cols;
  const Sizes complete = with_derived(variant, Sizes{rows, cols});
  return {complete, complete,
          with_derived(variant, Sizes{std::max<std::int64_t>(1, rows / 2), ragged_cols})};
}

}  // namespace dorajit::kernels
