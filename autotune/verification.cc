#include "autotune/verification.h"

#include <algorithm>
#include <optional>

#include "kernel_templates/config_limits.h"
#include "kernel_templates/partial_sums.h"

namespace dorajit::autotune {
namespace {

// Enough rows for two programs of the tallest elementwise config and a rest, few enough for the
// host reference.
constexpr std::int64_t kRows = 2 * kernels::kTallestElementwiseProgram + 12;
constexpr std::int64_t kReferenceElements = 1 << 20;

// Longer rows are cut to that, and end where they did in a vector or block of any config.
constexpr std::int64_t kMostCols = kReferenceElements;
constexpr std::int64_t kWidestBlock = 1 << 16;

constexpr std::size_t kGuardBytes = 4096;

constexpr std::int64_t kTallestProgram = kernels::kTallestSumProgram;

// Shapes that give every config seven partial sums, the last of them cut short. With three bits set
// in their number, as in that of the last one's leaves, no wrong order of the tree gives the right
// sum. Few columns leave it to a second shape to fill whole blocks.
std::vector<ScratchShape> deep_shapes(const launch::Problem& problem) {
  if (problem.variant.broadcast == kernels::Broadcast::kPerRow) {
    const std::int64_t cols =
        std::min<std::int64_t>(problem.num_cols, 6 * kernels::kPartialColumns + 37);
    const std::int64_t samples_per_partial =
        kernels::sum_layout(kernels::Broadcast::kPerRow, 1, cols, 1, 1).rows_per_partial;
    // Odd, so that the scratch operands take all the channels and no fewer samples. One channel
    // alone may have the right sum by chance.
    const std::int64_t samples = 6 * samples_per_partial + (samples_per_partial > 11 ? 11 : 1);
    const std::int64_t channels = samples * cols * 16 <= kReferenceElements ? 16 : 4;
    return {{.rows = channels * samples, .cols = cols, .seed = 14}};
  }
  return {{.rows = 6 * kTallestProgram + 85,
           .cols = std::min<std::int64_t>(problem.num_cols, 19),
           .seed = 14},
          {.rows = kTallestProgram + 85,
           .cols = std::min<std::int64_t>(problem.num_cols, 261),
           .seed = 15}};
}

}  // namespace

Result<Verifier> Verifier::make(const launch::Problem& problem, device::Device& device,
                                Deadline deadline) {
  Verifier verifier(device);
  const std::int64_t cols = problem.num_cols <= kMostCols
                                ? problem.num_cols
                                : kMostCols + problem.num_cols % kWidestBlock;
  const std::int64_t rows = std::clamp<std::int64_t>(kReferenceElements / cols, 1, kRows);
  const std::int64_t ragged_cols = cols > 3 ? cols - 3 : cols;
  std::vector<ScratchShape> shapes = {
      {.rows = rows, .cols = cols, .seed = 11},
      {.rows = rows, .cols = cols, .seed = 12},
      {.rows = std::max<std::int64_t>(1, rows / 2), .cols = ragged_cols, .seed = 13}};
  if (problem.variant.has_sum()) {
    for (const ScratchShape& deep : deep_shapes(problem)) shapes.push_back(deep);
  }
  for (ScratchShape aligned : shapes) {
    if (std::chrono::steady_clock::now() >= deadline) {
      return fail(StatusCode::kUnsupported, "the time for it was spent");
    }
    aligned.vector_width = problem.vector_width;
    aligned.guard_bytes = kGuardBytes;
    DORAJIT_ASSIGN(ScratchOperands operands,
                   ScratchOperands::make(device, problem.variant, aligned));
    DORAJIT_ASSIGN(const std::vector<std::byte> outputs, operands.reference_outputs(0));
    DORAJIT_ASSIGN(std::vector<std::byte> image, operands.read(0));
    std::vector<std::byte> expected = operands.with_outputs(image, outputs);
    verifier.cases_.push_back({std::move(operands), std::move(image), std::move(expected)});
  }
  return verifier;
}

Result<cache::Verdict> Verifier::check(const launch::ReadyKernel& kernel,
                                       const JournalPlace& place) {
  using Difference = ScratchOperands::Difference;
  const bool shares_memory = device_->info().traits.kind == kernels::DeviceKind::kCpu;
  for (Case& one : cases_) {
    DORAJIT_TRY(one.operands.poison(0));
    // Not while there is nothing to hold against the kernel: whoever is ended meanwhile would have
    // others leave it out.
    std::optional<JournalEntry> entry(place);
    DORAJIT_TRY(device_->launch(*kernel.kernel, kernel.config, one.operands.arguments(0),
                                device_->own_stream()));
    DORAJIT_TRY(device_->synchronize(device_->own_stream()));
    // What a kernel has done to the memory of the process may show only after it has ended.
    if (!shares_memory) entry.reset();
    DORAJIT_ASSIGN(const std::vector<std::byte> image, one.operands.read(0));
    const Difference difference = one.operands.compare(image, one.expected);
    entry.reset();
    if (difference == Difference::kNone) continue;
    // The next kernel is not to answer for what this one did to inputs and guards.
    DORAJIT_TRY(one.operands.restore(0, one.image));
    return difference == Difference::kOutputs ? cache::Verdict::kWrongBits
                                              : cache::Verdict::kOutOfBounds;
  }
  return cache::Verdict::kOk;
}

}  // namespace dorajit::autotune
