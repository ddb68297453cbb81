// The configs that a tuning compares, and their kernels.
#pragma once

#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "autotune/search/scratch_shape.h"
#include "autotune/search/tuning_session.h"
#include "cache/records/tuning_records.h"
#include "kernel_templates/spaces.h"
#include "runtime/base/artifact_store.h"
#include "runtime/device/device.h"
#include "runtime/launch/kernel_cache.h"

namespace dorajit::autotune {

struct TrialResult {
  kernels::Config config;
  cache::Verdict verdict = cache::Verdict::kOk;
  double median_ns = std::numeric_limits<double>::quiet_NaN();  // NaN if it was not measured
  double mad_ns = std::numeric_limits<double>::quiet_NaN();     // median absolute deviation
  int samples = 0;
  std::optional<cache::PairedComparison> comparison{};
};

struct Candidate {
  TrialResult result;
  std::optional<launch::ReadyKernel> kernel;  // empty once the candidate is eliminated
};

// At most `max_configs` configs of a space (0: all) without those in `left_out`: the first ones of
// a slim space, which begins with the most promising configs; evenly spread ones of a comprehensive
// space. The default, the first config of the space, is always included.
std::vector<kernels::Config> choose_configs(const std::vector<kernels::Config>& space,
                                            kernels::SpaceKind kind,
                                            std::span<const kernels::Config> left_out,
                                            int max_configs);

// The verdict on a config that is known as bad without launching it: kSpills if its threads spill
// registers to memory; kFailedToLaunch if one block of `warps` warps needs more registers or shared
// memory than any GPU allows. Nothing if the figures show no problem, which includes every CPU
// kernel.
std::optional<cache::Verdict> verdict_by_resources(const ResourceUsage& used, int warps,
                                                   kernels::DeviceKind kind);

// Removes the candidates from number `first` on; returns their configs.
std::vector<kernels::Config> remove_from(std::vector<Candidate>& candidates, std::size_t first);

// Compiles and loads the candidates from number `first` on, on several threads. A candidate that
// fails to compile, or that spills or cannot be launched according to its compiler's figures, gets
// a verdict and no kernel. Candidates that would probably not be ready by the deadline are removed
// and returned. Users' kernels are compiled until the end at the latest, and stopped then.
std::vector<kernels::Config> make_kernels(std::vector<Candidate>& candidates, std::size_t first,
                                          const TuningSession& session, device::Device& device,
                                          launch::KernelCache& kernels, Moment deadline,
                                          Moment end);

// Removes candidates that cannot run on the measured sizes, which may be smaller than the
// problem's.
void drop_misfits(std::vector<Candidate>& candidates, const launch::Problem& problem,
                  const device::Device& device, const ScratchShape& shape);

// A launch on sizes that the default config does not fit might access memory out of bounds.
Status check_default_fits(const Candidate& standard, const launch::Problem& problem,
                          const device::Device& device, const ScratchShape& shape);

}  // namespace dorajit::autotune
