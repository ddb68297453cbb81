// The sizes and operand sets on which candidates are timed, and which candidates fit them.
#pragma once

#include <vector>

#include "autotune/search/candidates.h"
#include "autotune/search/problem_tuner.h"
#include "autotune/search/scratch_operands.h"
#include "runtime/base/error.h"
#include "runtime/device/device.h"
#include "runtime/launch/problem.h"

namespace dorajit::autotune {

// As many rows of the bucket as the memory allows, and as many sets as make the cache cold.
Result<ScratchShape> measured_shape(const launch::Problem& problem, device::Device& device,
                                    const TuneLimits& limits);

// Removes candidates that cannot run on the measured sizes, which may be smaller than the
// problem's.
void drop_misfits(std::vector<Candidate>& candidates, const launch::Problem& problem,
                  const device::Device& device, const ScratchShape& shape);

// A launch on sizes that the default config does not fit might access memory out of bounds.
Status check_default_fits(const Candidate& standard, const launch::Problem& problem,
                          const device::Device& device, const ScratchShape& shape);

}  // namespace dorajit::autotune
