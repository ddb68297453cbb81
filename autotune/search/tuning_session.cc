#include "autotune/search/tuning_session.h"

#include <unistd.h>

#include <algorithm>
#include <format>
#include <string>
#include <utility>
#include <vector>

#include "cache/records/tuning_records.h"
#include "kernel_templates/config.h"
#include "runtime/base/hash.h"

namespace dorajit::autotune {
namespace {

std::string hash_of(const std::vector<kernels::Config>& space) {
  Hasher hasher("space/1");
  for (const kernels::Config& config : space) hasher.add("config", to_text(config));
  return hasher.digest();
}

}  // namespace

TuningSession::TuningSession(const launch::Problem& tuned_problem,
                             const device::DeviceInfo& tuned_device, kernels::SpaceKind kind,
                             Clock clock)
    : problem(tuned_problem),
      device(tuned_device),
      space_kind(kind),
      now(std::move(clock)),
      problem_text(to_text(problem)),
      space(kernels::config_space(problem.variant, device.traits, problem.vector_width, kind,
                                  problem.largest_sizes())),
      environment{
          .driver = device.driver_version,
          .policy = kMeasurementPolicy,
          .space = hash_of(space),
          .tuner = kTunerVersion,
          .templates = hash_hex(kernels::source_identity(problem.variant, device.traits.kind))},
      scope(std::format("{} {} {}", device.fingerprint, to_text(problem.variant),
                        environment.templates)) {}

void TuningSession::quarantine(const std::vector<kernels::Config>& configs) {
  for (const kernels::Config& config : configs) {
    if (!std::ranges::contains(quarantined, config)) quarantined.push_back(config);
  }
}

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

std::string host_id(std::string_view name) {
  constexpr std::size_t kDigits = 12;
  return Hasher("host/1").add("name", name).digest().substr(0, kDigits);
}

std::string host_id() {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  return host_id(name);
}

}  // namespace dorajit::autotune
