#include "autotune/search/quarantine.h"

#include <algorithm>
#include <string>

#include "cache/records/device_models.h"

namespace dorajit::autotune {

std::vector<kernels::Config> quarantined_configs(std::span<const cache::Trial> trials,
                                                 const TuningSession& session) {
  const std::string problems_of_variant = to_text(session.problem.variant) + "/";
  std::vector<kernels::Config> configs;
  for (const cache::Trial& trial : trials) {
    if (cache::is_bad(trial.verdict) &&
        cache::is_same_model(trial.device, session.device.fingerprint) &&
        trial.environment.templates == session.environment.templates &&
        trial.problem.starts_with(problems_of_variant) &&
        !std::ranges::contains(configs, trial.config)) {
      configs.push_back(trial.config);
    }
  }
  return configs;
}

}  // namespace dorajit::autotune
