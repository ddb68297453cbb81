#include "apps/cli/build/artifact_builds.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <format>
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

Status check_cache_dir(const Settings& settings) {
  if (!settings.cache_dir.empty()) return {};
  return fail(StatusCode::kIoError,
              "there is no cache folder to keep the kernels in: set DORAJIT_CACHE_DIR, or give "
              "--cache-dir, a folder that can be written");
}

std::int64_t count_not_kept(std::span<const ArtifactBuild> builds, launch::KernelCache& kernels) {
  return std::ranges::count_if(builds, [&](const ArtifactBuild& build) {
    return build.artifact && !kernels.is_kept(build.target, build.variant, build.config);
  });
}

Error not_kept(std::int64_t count, const Settings& settings) {
  return {.code = StatusCode::kIoError,
          .message = std::format(
              "{} of these kernels {} not kept in {}: free some space there, set "
              "DORAJIT_CACHE_MAX_BYTES to more than {}, here and where they are used, or give "
              "--cache-dir another folder",
              count, count == 1 ? "is" : "are", settings.cache_dir, settings.cache_max_bytes),
          .log = {}};
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
