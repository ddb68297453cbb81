// Which artifacts to compile for problems on a device that need not be in this machine.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "apps/cli/build/prewarm_problems.h"
#include "autotune/engine_factory.h"
#include "kernel_templates/config.h"
#include "kernel_templates/registry.h"
#include "runtime/base/artifact_store.h"
#include "runtime/base/error.h"
#include "runtime/compile/compiler.h"
#include "runtime/device/device.h"
#include "runtime/launch/kernel_cache.h"
#include "runtime/launch/problem.h"

namespace dorajit::cli {

// An artifact that is compiled in parallel to others.
struct ArtifactBuild {
  compile::Target target;
  kernels::Variant variant;
  int vector_width = 1;      // alignment class that the config is for
  kernels::Config config{};  // its compiled part
  Result<Artifact> artifact{};

  [[nodiscard]] bool spills() const;
};

// Builds all in up to `jobs` threads; `done` is called after each, from any thread.
void build_all(std::vector<ArtifactBuild>& builds, launch::KernelCache& kernels, int jobs,
               const std::function<void(const ArtifactBuild&)>& done);

// "cubin", "ptx" or "shared object"
std::string form_of(const compile::Target& target, const Artifact& artifact);

// Every device of a target that the databases have winners of, as far as its fingerprint describes
// it, and `here`, the device of this machine, unless it is null. Where there is none, one that no
// database knows.
std::vector<device::DeviceInfo> devices_of(const compile::Target& target,
                                           const std::vector<launch::Problem>& problems,
                                           const device::DeviceInfo* here,
                                           cache::TuningStore& store);

// For each problem the default config, the fallback chain's answer on each of the devices, and the
// configs that a tuning would try, with the kernel that compares outputs; for each space its
// configs. Of a space at most `max_configs` (0: as the settings have it). Each artifact once.
std::vector<ArtifactBuild> plan_prewarm(const compile::Target& target,
                                        const std::vector<launch::Problem>& problems,
                                        const std::vector<VariantSpace>& spaces,
                                        const std::vector<device::DeviceInfo>& devices,
                                        const autotune::EngineParts& parts, int max_configs);

}  // namespace dorajit::cli
