#include "autotune/search/tuning_session.h"

#include <algorithm>
#include <format>
#include <utility>
#include <vector>

#include "kernel_templates/config_text.h"
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

}  // namespace dorajit::autotune
