// Which artifacts make problems ready on a device that need not be here.
#pragma once

#include <optional>
#include <vector>

#include "apps/cli/build/artifact_builds.h"
#include "autotune/engine_factory.h"
#include "runtime/compile/compiler.h"
#include "runtime/device/device.h"
#include "runtime/launch/problem.h"

namespace dorajit::cli {

// Every device of a target that the databases tell of, as far as they do, and the device itself if
// it is here. Where they tell of none there is one that is like no other.
std::vector<device::DeviceInfo> devices_of(const compile::Target& target,
                                           const std::vector<launch::Problem>& problems,
                                           const device::DeviceInfo* here,
                                           cache::TuningStore& store);

// For each problem the default config, what the fallback chain answers on any of the devices, and
// what a tuning would try, of that at most `most_configs` (0: as the settings have it). Each
// artifact once.
std::vector<ArtifactBuild> plan_prewarm(const compile::Target& target,
                                        const std::vector<launch::Problem>& problems,
                                        const std::vector<device::DeviceInfo>& devices,
                                        const autotune::EngineParts& parts, int most_configs);

}  // namespace dorajit::cli
