
#include "autotune/search/scratch_shape.h"

#include <algorithm>
#include <format>

#include "autotune/search/measurement.h"
#include "autotune/search/scratch_operands.h"
#include "kernel_templates/sizes.h"

namespace dorajit::autotune {
namespace {

// A CPU is a hundred times slower than a GPU: a few times its cache size is cold enough and fast.
constexpr std::int64_t kCpuCachesOfScratch = 8;

}  // namespace

Result<std::int64_t> scratch_budget(std::int64_t scratch_bytes, device::Device& device) {
  if (scratch_bytes > 0) return scratch_bytes;
  DORAJIT_ASSIGN(const std::int64_t free, device.free_memory());
  return std::min(kMaxScratchBytes, free / 4);
}

ScratchShape scratch_shape(const launch::Problem& problem, kernels::DeviceKind kind,
                           std::int64_t bytes) {
  return fitting_shape(problem, problem.largest_sizes(), bytes, [&](const ScratchShape& shape) {
    return ScratchOperands::bytes_per_set(problem.variant, shape, kind);
  });
}

ScratchShape fitting_shape(const launch::Problem& problem, const kernels::Sizes& sizes,
                           std::int64_t bytes,
                           const std::function<std::int64_t(const ScratchShape&)>& bytes_of) {
  const kernels::Variant& variant = problem.variant;
  const auto& dimensions = variant.operation->dimensions;
  ScratchShape shape{.sizes = kernels::with_derived(variant, sizes, problem.vector_width),
                     .vector_width = problem.vector_width};
  for (std::size_t i = 0; i < dimensions.size(); ++i) {
    if (dimensions[i].keying != kernels::Keying::kBucketed) continue;
    const std::int64_t multiple = dimensions[i].limits_class ? problem.vector_width : 1;
    while (shape.sizes[i] > multiple && bytes_of(shape) > bytes) {
      shape.sizes[i] = std::max(shape.sizes[i] / 2 / multiple, std::int64_t{1}) * multiple;
      shape.sizes = kernels::with_derived(variant, shape.sizes, problem.vector_width);
    }
  }
  return shape;
}

Status check_fits(const launch::Problem& problem, const ScratchShape& shape,
                  kernels::DeviceKind kind, std::int64_t bytes) {
  const std::int64_t needed = ScratchOperands::bytes_per_set(problem.variant, shape, kind);
  if (needed <= bytes) return {};
  return fail(
      StatusCode::kOutOfMemory,
      std::format("operands of {} take {} bytes, but scratch memory is limited to {}; raise "
                  "DORAJIT_SCRATCH_BYTES to measure them",
                  kernels::to_text(*problem.variant.operation, shape.sizes), needed, bytes));
}

Result<ScratchShape> measured_shape(const launch::Problem& problem, device::Device& device,
                                    std::int64_t scratch_bytes) {
  const kernels::DeviceKind kind = device.info().traits.kind;
  DORAJIT_ASSIGN(const std::int64_t max_bytes, scratch_budget(scratch_bytes, device));
  std::int64_t budget = max_bytes;
  if (scratch_bytes == 0 && kind == kernels::DeviceKind::kCpu) {
    budget = std::min(budget, kCpuCachesOfScratch * device.info().cache_bytes);
  }
  ScratchShape shape = scratch_shape(problem, kind, budget);
  DORAJIT_TRY(check_fits(problem, shape, kind, max_bytes));
  const std::int64_t set_bytes = ScratchOperands::bytes_per_set(problem.variant, shape, kind);
  shape.sets = sets_for_cold_cache(device.info(), set_bytes, budget);
  return shape;
}

}  // namespace dorajit::autotune
