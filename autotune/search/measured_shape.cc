#include "autotune/search/measured_shape.h"

#include <algorithm>
#include <cstdint>
#include <format>
#include <string>

#include "autotune/search/measurement.h"
#include "kernel_templates/config_text.h"
#include "kernel_templates/template.h"

namespace dorajit::autotune {
namespace {

// A CPU is a hundred times slower than a GPU: a few times its cache size is cold enough and fast.
constexpr std::int64_t kCpuCachesOfScratch = 8;

}  // namespace

Result<ScratchShape> measured_shape(const launch::Problem& problem, device::Device& device,
                                    const TuneLimits& limits) {
  const kernels::DeviceKind kind = device.info().traits.kind;
  DORAJIT_ASSIGN(const std::int64_t max_bytes, scratch_budget(limits.scratch_bytes, device));
  std::int64_t budget = max_bytes;
  if (limits.scratch_bytes == 0 && kind == kernels::DeviceKind::kCpu) {
    budget = std::min(budget, kCpuCachesOfScratch * device.info().cache_bytes);
  }
  ScratchShape shape = scratch_shape(problem, kind, budget);
  DORAJIT_TRY(check_fits(problem, shape, kind, max_bytes));
  const std::int64_t set_bytes = ScratchOperands::bytes_per_set(problem.variant, shape, kind);
  shape.sets = sets_for_cold_cache(device.info(), set_bytes, budget);
  return shape;
}

void drop_misfits(std::vector<Candidate>& candidates, const launch::Problem& problem,
                  const device::Device& device, const ScratchShape& shape) {
  const kernels::Template& used = kernels::template_of(problem.variant);
  if (!used.fits_by_call) return;
  const auto why_not = used.why_config_does_not_fit;
  const auto is_misfit = [&](const Candidate& candidate) {
    return !why_not(problem.variant, device.info().traits, shape.sizes, candidate.result.config)
                .empty();
  };
  candidates.erase(std::remove_if(candidates.begin() + 1, candidates.end(), is_misfit),
                   candidates.end());
}

Status check_default_fits(const Candidate& standard, const launch::Problem& problem,
                          const device::Device& device, const ScratchShape& shape) {
  const kernels::Template& used = kernels::template_of(problem.variant);
  if (!used.fits_by_call) return {};
  const auto why_not = used.why_config_does_not_fit;
  const kernels::SpaceTraits& traits = device.info().traits;
  for (const kernels::Sizes& sizes : {problem.largest_sizes(), shape.sizes}) {
    const std::string why = why_not(problem.variant, traits, sizes, standard.result.config);
    if (why.empty()) continue;
    return fail(StatusCode::kUnsupported,
                std::format("{} is not tuned: the default config {} does not fit it: {}",
                            to_text(problem), to_text(standard.result.config), why));
  }
  return {};
}

}  // namespace dorajit::autotune
