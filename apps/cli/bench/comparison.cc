#include "apps/cli/bench/comparison.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "autotune/search/scratch_operands.h"
#include "kernel_templates/arguments.h"
#include "kernel_templates/sizes.h"
#include "kernel_templates/spaces.h"
#include "runtime/launch/kernel_cache.h"

namespace dorajit::cli {
namespace {

using autotune::ScratchOperands;
using autotune::ScratchShape;
using kernels::KernelArguments;
using kernels::Variant;

constexpr std::string_view kOut = "out";
constexpr std::string_view kTemporary = "temporary";  // of no operand

struct Pass {
  std::string_view operation;
  std::array<std::string_view, 3> operands;  // compose's names for them; empty beyond the last
};

constexpr std::array kPasses = {
    Pass{"scale_by_scalar", {"lora", kOut}},
    Pass{"scale_by_gain", {kOut, "gain", kOut}},
    Pass{"scale_by_gain_minus_one", {"base", "gain", kTemporary}},
    Pass{"add", {kOut, kTemporary, kOut}},
};

// Where compose has the operand of that name; the temporary stands behind all of them.
std::size_t place_of(const Variant& compose, std::string_view name) {
  const auto& operands = compose.operation->operands;
  const auto found = std::ranges::find(operands, name, &kernels::Operand::name);
  return static_cast<std::size_t>(found - operands.begin());
}

kernels::ElementType type_of_result(const Variant& compose) {
  return compose.types[place_of(compose, kOut)];
}

// The composition without a fused kernel: four passes over memory.
//
// Each pass is a kernel of its own with its default config: t = s*lora, t = g*t, u = (g-1)*base,
// out = t + u. t is in the output's memory, so one temporary, of the output's type, suffices.
class UnfusedPasses {
 public:
  // For matrices of those sizes. `device` must outlive this.
  static Result<UnfusedPasses> make(device::Device& device, launch::KernelCache& kernels,
                                    const Variant& compose, int vector_width,
                                    const kernels::Sizes& sizes);

  // Enqueues the passes on the operands of a `compose` launch.
  Status run(const KernelArguments& compose, device::Stream stream) const;

  // Of the temporary.
  static std::int64_t temporary_bytes(const Variant& compose, const kernels::Sizes& sizes);

 private:
  explicit UnfusedPasses(device::Device& device) : device_(&device) {}

  struct ReadyPass {
    launch::ReadyKernel kernel;
    std::vector<std::size_t> places;  // of its operands among compose's and, behind, the temporary
  };

  device::Device* device_;
  std::size_t temporary_place_ = 0;
  std::vector<ReadyPass> passes_;
  std::unique_ptr<device::Buffer> temporary_;
  long long row_stride_ = 0;
};

std::int64_t UnfusedPasses::temporary_bytes(const Variant& compose, const kernels::Sizes& sizes) {
  return sizes[kernels::kRows] * sizes[kernels::kCols] *
         kernels::size_in_bytes(type_of_result(compose));
}

Result<UnfusedPasses> UnfusedPasses::make(device::Device& device, launch::KernelCache& kernels,
                                          const Variant& compose, int vector_width,
                                          const kernels::Sizes& sizes) {
  UnfusedPasses passes(device);
  passes.temporary_place_ = place_of(compose, kTemporary);
  auto types = compose.types;
  types[passes.temporary_place_] = type_of_result(compose);
  for (const Pass& pass : kPasses) {
    ReadyPass& ready = passes.passes_.emplace_back();
    Variant variant{.operation = &kernels::operation(pass.operation)};
    for (std::size_t i = 0; i < variant.operation->operands.size(); ++i) {
      ready.places.push_back(place_of(compose, pass.operands[i]));
      variant.types[i] = types[ready.places[i]];
    }
    const kernels::Config config =
        kernels::default_config(variant, device.info().traits, vector_width);
    DORAJIT_ASSIGN(ready.kernel, kernels.get(device, variant, config));
  }
  const std::int64_t bytes = temporary_bytes(compose, sizes);
  DORAJIT_ASSIGN(passes.temporary_, device.allocate(static_cast<std::size_t>(bytes)));
  DORAJIT_TRY(device.fill(passes.temporary_->data(), 0, passes.temporary_->size()));
  passes.row_stride_ = sizes[kernels::kCols];
  return passes;
}

Status UnfusedPasses::run(const KernelArguments& compose, device::Stream stream) const {
  auto operands = std::to_array(compose.operands);
  operands[temporary_place_] = {.data = temporary_->data(), .row_stride = row_stride_};
  KernelArguments arguments{};
  std::ranges::copy(compose.sizes, arguments.sizes);
  arguments.scalars[0] = compose.scalars[0];
  for (const auto& [ready, places] : passes_) {
    for (std::size_t i = 0; i < places.size(); ++i) arguments.operands[i] = operands[places[i]];
    DORAJIT_TRY(device_->launch(*ready.kernel, ready.config, arguments, stream));
  }
  return {};
}

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
