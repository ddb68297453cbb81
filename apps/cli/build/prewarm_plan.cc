#include "apps/cli/build/prewarm_plan.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <format>
#include <set>
#include <string>
#include <system_error>
#include <thread>

#include "autotune/search/candidates.h"
#include "autotune/search/set_difference.h"
#include "autotune/sources/fallback_chain.h"
#include "autotune/sources/tuning_config_source.h"
#include "kernel_templates/config.h"
#include "runtime/base/log.h"

namespace dorajit::cli {
namespace {

using autotune::LookupResult;

// The fallback chain's answers if nothing is tuned. The driver of that machine is not known, so any
// winner may be stale there: the answers of both databases are made.
std::vector<kernels::Config> answers(const launch::Problem& problem,
                                     const device::DeviceInfo& device,
                                     const autotune::EngineParts& parts) {
  const Settings& settings = parts.engine->settings();
  autotune::TuningSession session(problem, device, autotune::space_kind(settings));
  std::vector<kernels::Config> configs;
  for (const LookupResult& look : find_exact(*parts.store, session)) {
    if (look.answers) configs.push_back(answer_of(look, session).config);
  }
  if (!configs.empty()) return configs;
  const std::vector<LookupResult> looks = find_nearest(*parts.store, session);
  return {answer_of(looks.back(), session).config};
}

}  // namespace

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

std::vector<device::DeviceInfo> devices_of(const compile::Target& target,
                                           const std::vector<launch::Problem>& problems,
                                           const device::DeviceInfo* here,
                                           cache::TuningStore& store) {
  std::set<std::string> variants;
  for (const launch::Problem& problem : problems) variants.insert(to_text(problem.variant));
  const std::string part = std::format("/{}/", target.arch);  // of a GPU's fingerprint
  std::set<std::string> fingerprints;
  if (target.kind == kernels::DeviceKind::kCuda) {
    for (const std::string& variant : variants) {
      for (const cache::Winner& winner : store.winners_of_variant(variant)) {
        if (winner.device.contains(part)) fingerprints.insert(winner.device);
      }
    }
  }
  std::vector<device::DeviceInfo> devices;
  if (here != nullptr) {
    devices.push_back(*here);
    fingerprints.erase(here->fingerprint);
  }
  if (fingerprints.empty() && here == nullptr) fingerprints.insert(std::format("cuda{}", part));
  for (const std::string& fingerprint : fingerprints) {
    devices.push_back({.traits = compile::traits_of(target),
                       .name = fingerprint,
                       .fingerprint = fingerprint,
                       .driver_version = {},
                       .target = target});
  }
  return devices;
}

std::vector<ArtifactBuild> plan_prewarm(const compile::Target& target,
                                        const std::vector<launch::Problem>& problems,
                                        const std::vector<VariantSpace>& spaces,
                                        const std::vector<device::DeviceInfo>& devices,
                                        const autotune::EngineParts& parts, int max_configs) {
  const Settings& settings = parts.engine->settings();
  const kernels::SpaceKind kind = autotune::space_kind(settings);
  const kernels::SpaceTraits& traits = devices.front().traits;
  std::vector<ArtifactBuild> builds;
  std::set<std::string> planned;
  const auto chosen = [&](const std::vector<kernels::Config>& space) {
    return autotune::choose_configs(space, kind, {},
                                    max_configs > 0 ? max_configs : settings.tune_candidates);
  };
  const auto add = [&](const VariantSpace& of, const std::vector<kernels::Config>& configs) {
    for (const kernels::Config& config : configs) {
      const kernels::Config compiled = kernels::compiled_part(config, target.kind);
      const std::string name =
          std::format("{} {}", to_text(of.variant), kernels::to_text(compiled));
      if (!planned.insert(name).second) continue;
      builds.push_back({.target = target,
                        .variant = of.variant,
                        .vector_width = of.vector_width,
                        .config = compiled});
    }
  };
  for (const VariantSpace& space : spaces) {
    add(space, chosen(kernels::config_space(space.variant, traits, space.vector_width, kind)));
  }
  for (const launch::Problem& problem : problems) {
    const VariantSpace space{.variant = problem.variant, .vector_width = problem.vector_width};
    add(space, chosen(kernels::config_space(problem.variant, traits, problem.vector_width, kind,
                                            problem.largest_sizes())));
    for (const device::DeviceInfo& device : devices) add(space, answers(problem, device, parts));
  }
  // Tuning on a GPU compares outputs by a kernel.
  if (!problems.empty() && target.kind == kernels::DeviceKind::kCuda) {
    add({.variant = autotune::SetDifference::variant()}, {kernels::Config{}});
  }
  return builds;
}

}  // namespace dorajit::cli
