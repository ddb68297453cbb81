// Artifacts that are compiled in parallel.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "kernel_templates/config.h"
#include "kernel_templates/registry.h"
#include "runtime/base/artifact_store.h"
#include "runtime/base/error.h"
#include "runtime/base/settings.h"
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

// An error where there is no cache folder: kernels that are compiled ahead must outlast the
// program.
Status check_cache_dir(const Settings& settings);

// How many of those that were built are not in the cache folder now: its disk was full, or its byte
// bound is too small.
std::int64_t count_not_kept(std::span<const ArtifactBuild> builds, launch::KernelCache& kernels);

// The error that says what to do about them.
Error not_kept(std::int64_t count, const Settings& settings);

// "cubin", "ptx" or "shared object"
std::string form_of(const compile::Target& target, const Artifact& artifact);

}  // namespace dorajit::cli
