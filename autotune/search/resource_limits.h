// What a kernel may need of a device, from the figures of its compiler.
#pragma once

#include <optional>

#include "cache/records/tuning_records.h"
#include "kernel_templates/config.h"
#include "kernel_templates/registry.h"
#include "runtime/base/artifact_store.h"

namespace dorajit::autotune {

// The verdict on a config that need not be launched to be known as bad: kSpills when its threads
// keep registers in memory, kFailedToLaunch when one block of it needs more registers or shared
// memory than a block may have on any GPU. Nothing where the figures say nothing against it, as
// they do not on a CPU.
std::optional<cache::Verdict> verdict_by_resources(const ResourceUsage& used,
                                                   const kernels::Config& config,
                                                   kernels::DeviceKind kind);

}  // namespace dorajit::autotune
