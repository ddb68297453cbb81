// The problems and config spaces that `dorajit prewarm` compiles for, and which artifacts to
// compile for them on a device that need not be in this machine.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "apps/cli/options/problem_options.h"
#include "autotune/engine_factory.h"
#include "kernel_templates/config.h"
#include "kernel_templates/registry.h"
#include "runtime/base/artifact_store.h"
#include "runtime/base/error.h"
#include "runtime/compile/compiler.h"
#include "runtime/device/device.h"
#include "runtime/launch/kernel_cache.h"
#include "runtime/launch/problem.h"

namespace CLI {  // NOLINT(readability-identifier-naming): not ours
class App;
}

namespace dorajit::cli {

// The configs of a variant for data that is aligned to so many elements.
struct VariantSpace {
  kernels::Variant variant;
  int vector_width = 1;
};

struct PrewarmOptions {
  std::vector<std::string> shapes;
  std::string file;  // of problems, one a line
  OwnKernelOptions own_kernel;
  std::vector<std::string> ops;
  bool all_alignments = false;  // also for data that is aligned to an element only
  // Without its op; no type: bf16.
  VariantOptions variant{.op = {}, .type = {}, .gain_type = {}, .types = {}};
};

// Declares --shape, --from, --op, --all-alignments and what add_own_kernel_options() and
// add_variant_options() declare.
void add_prewarm_options(CLI::App& app, PrewarmOptions& options);

// The problems that the options name, for any kind of device.
class PrewarmProblems {
 public:
  // Does not read a file of problems. kInvalidArgument unless the options name one source of
  // problems, or operations alone.
  static Result<PrewarmProblems> read(const PrewarmOptions& options);

  // Without repeats; empty where the options name operations alone. kInvalidArgument for an own
  // kernel on a CPU.
  [[nodiscard]] Result<std::vector<launch::Problem>> on(kernels::DeviceKind kind) const;
  // The spaces of operations that are named alone; else empty.
  [[nodiscard]] std::vector<VariantSpace> spaces(kernels::DeviceKind kind) const;

 private:
  std::vector<std::vector<std::int64_t>> shapes_;
  std::vector<kernels::Variant> variants_;
  std::string file_;
  std::vector<launch::Problem> of_own_kernel_;
  bool all_alignments_ = false;
};

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
