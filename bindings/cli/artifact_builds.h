// Many artifacts compiled side by side.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernel_templates/config.h"
#include "kernel_templates/registry.h"
#include "kernel_templates/spaces.h"
#include "runtime/base/artifact_store.h"
#include "runtime/base/error.h"
#include "runtime/compile/compiler.h"
#include "runtime/launch/kernel_cache.h"

namespace dorajit::cli {

struct ArtifactBuild {
  compile::Target target;
  kernels::Variant variant;
  int vector_width = 1;      // alignment class that the config is for
  kernels::Config config{};  // its compiled part
  Result<Artifact> artifact{};

  [[nodiscard]] bool spills() const;
};

// Every config of the space for an alignment class, each compiled part once.
std::vector<ArtifactBuild> plan_builds(const compile::Target& target,
                                       const kernels::Variant& variant, int vector_width,
                                       int processors, kernels::SpaceKind space);

// Builds all of them in up to `jobs` threads; `done` is called after each, from any thread.
void build_all(std::vector<ArtifactBuild>& builds, launch::KernelCache& kernels, int jobs,
               const std::function<void(const ArtifactBuild&)>& done);

// "cubin", "ptx" or "shared object"
std::string form_of(const compile::Target& target, const Artifact& artifact);

}  // namespace dorajit::cli
