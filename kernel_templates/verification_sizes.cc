#include "kernel_templates/verification_sizes.h"

#include <algorithm>
#include <cstdint>

#include "kernel_templates/config_limits.h"
#include "kernel_templates/partial_sums.h"
#include "kernel_templates/sizes.h"

namespace dorajit::kernels {
namespace {

// Enough rows for two programs of the tallest elementwise config and a rest, few enough for the
// host reference.
constexpr std::int64_t kVerifiedRows = 2 * kTallestElementwiseProgram + 12;
constexpr std::int64_t kReferenceElements = 1 << 20;

// Longer rows are cut to that, and end where they did in a vector or block of any config.
constexpr std::int64_t kMostCols = kReferenceElements;
constexpr std::int64_t kWidestBlock = 1 << 16;

constexpr std::int64_t kTallestProgram = kTallestSumProgram;

// Shapes that give every config seven partial sums, the last of them cut short. With three bits set
// in their number, as in that of the last one's leaves, no wrong order of the tree gives the right
// sum. Few columns leave it to a second shape to fill whole blocks.
std::vector<Sizes> deep_sizes(const Variant& variant, std::int64_t num_cols) {
  if (variant.broadcast == Broadcast::kPerRow) {
    const std::int64_t cols = std::min<std::int64_t>(num_cols, 6 * kPartialColumns + 37);
    const std::int64_t samples_per_partial =
        sum_layout(Broadcast::kPerRow, 1, cols, 1, 1).rows_per_partial;
    // Odd, so that the scratch operands take all the channels and no fewer samples. One channel
    // alone may have the right sum by chance.
    const std::int64_t samples = 6 * samples_per_partial + (samples_per_partial > 11 ? 11 : 1);
    const std::int64_t channels = samples * cols * 16 <= kReferenceElements ? 16 : 4;
    return {Sizes{channels * samples, cols, channels}};
  }
  const std::int64_t few = std::min<std::int64_t>(num_cols, 19);
  const std::int64_t many = std::min<std::int64_t>(num_cols, 261);
  return {Sizes{6 * kTallestProgram + 85, few, few}, Sizes{kTallestProgram + 85, many, many}};
}

}  // namespace

std::vector<Sizes> verification_sizes(const Variant& variant, const Sizes& problem) {
  const std::int64_t num_cols = problem[kCols];
  const std::int64_t cols = num_cols <= kMostCols ? num_cols : kMostCols + num_cols % kWidestBlock;
  const std::int64_t rows = std::clamp<std::int64_t>(kReferenceElements / cols, 1, kVerifiedRows);
  const std::int64_t ragged_cols = cols > 3 ? cols - 3 : cols;
  const Sizes whole = with_derived(variant, Sizes{rows, cols});
  std::vector<Sizes> sizes = {
      whole, whole, with_derived(variant, Sizes{std::max<std::int64_t>(1, rows / 2), ragged_cols})};
  if (variant.has_sum()) sizes.append_range(deep_sizes(variant, num_cols));
  return sizes;
}

}  // namespace dorajit::kernels
