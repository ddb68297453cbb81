#include "apps/cli/bench/comparison.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

#include "apps/cli/bench/traffic.h"
#include "apps/cli/bench/unfused_passes.h"
#include "autotune/search/scratch_operands.h"
#include "kernel_templates/sizes.h"
#include "kernel_templates/spaces.h"

namespace dorajit::cli {
namespace {

using autotune::ScratchOperands;
using autotune::ScratchShape;
using kernels::Variant;

constexpr std::int64_t kCopyAlignment = 4096;

// Pairs of regions to copy between, one pair per set.
class CopyRegions {
 public:
  static std::int64_t bytes_per_set(std::int64_t copied) { return 2 * stride_of(copied); }

  static Result<CopyRegions> make(device::Device& device, std::int64_t copied, std::int64_t sets) {
    CopyRegions regions;
    regions.copied_ = static_cast<std::size_t>(copied);
    regions.stride_ = static_cast<std::size_t>(stride_of(copied));
    const std::int64_t bytes = sets * bytes_per_set(copied);
    DORAJIT_ASSIGN(regions.buffer_, device.allocate(static_cast<std::size_t>(bytes)));
    // Pages that were never written may all be one physical page.
    DORAJIT_TRY(device.fill(regions.buffer_->data(), 1, regions.buffer_->size()));
    return regions;
  }

  Status copy(device::Device& device, std::int64_t set, device::Stream stream) const {
    std::byte* const source = buffer_->data() + static_cast<std::size_t>(2 * set) * stride_;
    return device.copy(source + stride_, source, copied_, stream);
  }

 private:
  static std::int64_t stride_of(std::int64_t copied) {
    return (copied + kCopyAlignment - 1) / kCopyAlignment * kCopyAlignment;
  }

  std::size_t copied_ = 0;
  std::size_t stride_ = 0;
  std::unique_ptr<device::Buffer> buffer_;
};

// Sizes and sets that fit the budget.
Result<ScratchShape> measured_shape(const launch::Problem& problem, const device::DeviceInfo& info,
                                    const kernels::Sizes& sizes, std::int64_t budget) {
  const auto set_bytes = [&](const ScratchShape& shape) {
    return ScratchOperands::bytes_per_set(problem.variant, shape, info.traits.kind) +
           CopyRegions::bytes_per_set(traffic(problem.variant, shape.sizes) / 2);
  };
  const auto temporary = [&](const ScratchShape& shape) {
    return UnfusedPasses::temporary_bytes(problem.variant, shape.sizes);
  };
  ScratchShape shape = autotune::fitting_shape(
      problem, sizes, budget,
      [&](const ScratchShape& smaller) { return set_bytes(smaller) + temporary(smaller); });
  DORAJIT_TRY(autotune::check_fits(problem, shape, info.traits.kind, budget));
  // The operands alone must exceed the cache: a launch does not touch the copy's regions.
  const std::int64_t operand_bytes =
      ScratchOperands::bytes_per_set(problem.variant, shape, info.traits.kind);
  const std::int64_t affordable =
      std::max<std::int64_t>((budget - temporary(shape)) / set_bytes(shape), 1);
  shape.sets = autotune::sets_for_cold_cache(info, operand_bytes, affordable * operand_bytes);
  return shape;
}

}  // namespace

Result<Comparison> compare(Engine& engine, device::Device& device, const launch::Problem& problem,
                           const kernels::Config& winner, const ComparisonPlan& plan) {
  const Variant& variant = problem.variant;
  launch::KernelCache& kernels = engine.kernels();
  DORAJIT_ASSIGN(
      const launch::ReadyKernel standard,
      kernels.get(device, variant,
                  kernels::default_config(variant, device.info().traits, problem.vector_width,
                                          problem.largest_sizes())));
  DORAJIT_ASSIGN(const launch::ReadyKernel tuned, kernels.get(device, variant, winner));

  DORAJIT_ASSIGN(const std::int64_t budget,
                 autotune::scratch_budget(engine.settings().scratch_bytes, device));
  DORAJIT_ASSIGN(const ScratchShape shape,
                 measured_shape(problem, device.info(), plan.sizes, budget));
  const std::int64_t bytes = traffic(variant, shape.sizes);
  DORAJIT_ASSIGN(const ScratchOperands scratch, ScratchOperands::make(device, variant, shape));
  DORAJIT_ASSIGN(const UnfusedPasses unfused,
                 UnfusedPasses::make(device, kernels, variant, problem.vector_width, shape.sizes));
  DORAJIT_ASSIGN(const CopyRegions regions, CopyRegions::make(device, bytes / 2, shape.sets));

  const auto launch = [&](const launch::ReadyKernel& ready) {
    return [&](device::Stream stream, std::int64_t set) {
      return device.launch(*ready.kernel, ready.config, scratch.arguments(set), stream);
    };
  };
  std::vector<autotune::Work> work = {
      launch(standard),
      [&](device::Stream stream, std::int64_t set) {
        return unfused.run(scratch.arguments(set), stream);
      },
      [&](device::Stream stream, std::int64_t set) { return regions.copy(device, set, stream); }};
  const bool is_default = tuned.config == standard.config;
  if (!is_default) work.emplace_back(launch(tuned));
  auto measured = autotune::measure_interleaved(
      device, work,
      {.rounds = plan.rounds,
       .seconds = plan.seconds,
       .sets = shape.sets,
       .settling_launches = autotune::launches_to_settle(device.info(), scratch.set_bytes())});
  for (const autotune::Measurement& one : measured) DORAJIT_TRY(one.status);
  return Comparison{.sizes = shape.sizes,
                    .sets = shape.sets,
                    .bytes = bytes,
                    .default_config = standard.config,
                    .winner_config = tuned.config,
                    .default_run = measured[0],
                    .winner = is_default ? measured[0] : measured[3],
                    .unfused = measured[1],
                    .copy = measured[2]};
}

}  // namespace dorajit::cli
