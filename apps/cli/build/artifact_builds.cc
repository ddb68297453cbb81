#include "apps/cli/build/artifact_builds.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <system_error>
#include <thread>

#include "runtime/base/log.h"

namespace dorajit::cli {

bool ArtifactBuild::spills() const {
  return artifact &&
         (artifact->resources.spill_store_bytes > 0 || artifact->resources.spill_load_bytes > 0);
}

void build_all(std::vector<ArtifactBuild>& builds, launch::KernelCache& kernels, int jobs,
               const std::function<void(const ArtifactBuild&)>& done) {
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < builds.size(); i = next++) {
      ArtifactBuild& build = builds[i];
      build.artifact = kernels.build(build.target, build.variant, build.config);
      done(build);
    }
  };
  const auto wanted = std::min(builds.size(), static_cast<std::size_t>(std::max(jobs, 1)));
  std::vector<std::thread> helpers;
  try {
    while (helpers.size() + 1 < wanted) helpers.emplace_back(work);
  } catch (const std::system_error&) {
    log(LogLevel::kDebug, "no more threads can be made: fewer kernels are compiled at a time");
  }
  work();
  for (std::thread& helper : helpers) helper.join();
}

std::string form_of(const compile::Target& target, const Artifact& artifact) {
  if (target.kind == kernels::DeviceKind::kCpu) return "shared object";
  return artifact.code.starts_with(
             "\x7f"
             "ELF")
             ? "cubin"
             : "ptx";
}

}  // namespace dorajit::cli
