// Artifacts that are compiled in parallel.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernel_templates/config.h"
#include "kernel_templates/registry.h"
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

// Builds all in up to `jobs` threads; `done` is called after each, from any thread.
void build_all(std::vector<ArtifactBuild>& builds, launch::KernelCache& kernels, int jobs,
               const std::function<void(const ArtifactBuild&)>& done);

// "cubin", "ptx" or "shared object"
std::string form_of(const compile::Target& target, const Artifact& artifact);

}  // namespace dorajit::cli
