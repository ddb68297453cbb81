#include "apps/cli/build/prewarm_plan.h"

#include <algorithm>
#include <format>
#include <set>
#include <string>

#include "autotune/search/candidates.h"
#include "autotune/sources/fallback_chain.h"
#include "autotune/sources/tuning_config_source.h"
#include "kernel_templates/config_text.h"

namespace dorajit::cli {
namespace {

using autotune::LookupResult;

// What the fallback chain answers if nothing is tuned. Which driver runs there is not known, so a
// winner may be stale or not: both databases' count.
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
                                        const std::vector<device::DeviceInfo>& devices,
                                        const autotune::EngineParts& parts, int most_configs) {
  const Settings& settings = parts.engine->settings();
  const kernels::SpaceKind kind = autotune::space_kind(settings);
  std::vector<ArtifactBuild> builds;
  std::set<std::string> planned;
  for (const launch::Problem& problem : problems) {
    std::vector<kernels::Config> configs = autotune::choose_configs(
        kernels::config_space(problem.variant, devices.front().traits, problem.vector_width, kind,
                              problem.largest_sizes()),
        kind, {}, most_configs > 0 ? most_configs : settings.tune_candidates);
    for (const device::DeviceInfo& device : devices) {
      std::ranges::copy(answers(problem, device, parts), std::back_inserter(configs));
    }
    for (const kernels::Config& config : configs) {
      const kernels::Config compiled = kernels::compiled_part(config, target.kind);
      const std::string name =
          std::format("{} {}", to_text(problem.variant), kernels::to_text(compiled));
      if (!planned.insert(name).second) continue;
      builds.push_back({.target = target,
                        .variant = problem.variant,
                        .vector_width = problem.vector_width,
                        .config = compiled});
    }
  }
  return builds;
}

}  // namespace dorajit::cli
