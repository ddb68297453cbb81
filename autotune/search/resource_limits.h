// Checks a kernel's resources against device limits, from its compiler's figures.
#pragma once

#include <optional>

#include "cache/records/tuning_records.h"
#include "kernel_templates/registry.h"
#include "runtime/base/artifact_store.h"

namespace dorajit::autotune {

// The verdict on a config that is known as bad without launching it: kSpills if its threads spill
// registers to memory; kFailedToLaunch if one block of `warps` warps needs more registers or shared
// memory than any GPU allows. Nothing if the figures show no problem, which includes every CPU
// kernel.
std::optional<cache::Verdict> verdict_by_resources(const ResourceUsage& used, int warps,
                                                   kernels::DeviceKind kind);

}  // namespace dorajit::autotune
