#include "autotune/quarantine.h"

#include <algorithm>
#include <format>

#include "runtime/base/hash.h"

namespace dorajit::autotune {
namespace {

std::string templates_of(const kernels::Variant& variant, const device::DeviceInfo& device) {
  return hash_hex(kernels::source_identity(variant, device.traits.kind));
}

bool is_of_variant(std::string_view problem, const kernels::Variant& variant) {
  return problem.starts_with(to_text(variant) + "/");
}

}  // namespace

std::string quarantine_scope(const kernels::Variant& variant, const device::DeviceInfo& device) {
  return std::format("{} {} {}", device.fingerprint, to_text(variant),
                     templates_of(variant, device));
}

std::vector<kernels::Config> quarantined_configs(std::span<const cache::Trial> trials,
                                                 const kernels::Variant& variant,
                                                 const device::DeviceInfo& device) {
  const std::string templates = templates_of(variant, device);
  std::vector<kernels::Config> configs;
  for (const cache::Trial& trial : trials) {
    if (cache::is_bad(trial.verdict) && trial.device == device.fingerprint &&
        trial.environment.templates == templates && is_of_variant(trial.problem, variant) &&
        std::ranges::find(configs, trial.config) == configs.end()) {
      configs.push_back(trial.config);
    }
  }
  return configs;
}

std::vector<kernels::Config> quarantined_configs(cache::TuningStore& store,
                                                 const kernels::Variant& variant,
                                                 const device::DeviceInfo& device) {
  return quarantined_configs(store.bad_trials(device.fingerprint), variant, device);
}

}  // namespace dorajit::autotune
