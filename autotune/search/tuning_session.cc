#include "autotune/search/tuning_session.h"

#include <format>
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
                             const device::DeviceInfo& tuned_device, kernels::SpaceKind kind)
    : problem(tuned_problem),
      device(tuned_device),
      space_kind(kind),
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

}  // namespace dorajit::autotune
