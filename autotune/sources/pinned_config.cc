#include "autotune/sources/pinned_config.h"

#include <format>

#include "kernel_templates/config.h"
#include "kernel_templates/spaces.h"
#include "runtime/base/log.h"

namespace dorajit::autotune {
namespace {

using launch::ConfigAnswer;
using launch::ConfigOrigin;

std::string named(const std::string& text) { return text.empty() ? "none" : text; }

// Why the problem cannot run as locked; empty if it can. `has_config` returns whether at least its
// config can run.
std::string why_not_as_locked(const cache::Pin& locked, const launch::Problem& problem,
                              device::Device& device, launch::KernelCache& kernels,
                              bool& has_config) {
  has_config = false;
  const auto now = pin_of(problem, locked.config, device, kernels);
  if (!now) return now.error().message;
  has_config = now->config == locked.config;
  const auto differing = differences(locked, *now);
  if (differing.empty()) return {};
  const cache::PinDifference& first = differing.front();
  return std::format("its {} was {} and is {} here", first.field, named(first.first),
                     named(first.second));
}

struct Miss {
  LockedMiss on_miss;
  const std::string& path;
  const launch::Problem& problem;

  ConfigAnswer operator()(ConfigAnswer answer, std::string_view why,
                          std::string_view what_runs) const {
    const std::string what =
        std::format("{} cannot run as the lock file {} requires: {}", to_text(problem), path, why);
    if (on_miss == LockedMiss::kFail) {
      answer.refusal = Error{
          .code = StatusCode::kUnsupported,
          .message =
              what + "; write it again with `dorajit freeze`, or set DORAJIT_LOCKED_MISS=report",
          .log = {}};
      return answer;
    }
    log_once(LogLevel::kWarning, what, std::format("{}; {}", what, what_runs));
    return answer;
  }
};

}  // namespace

Result<cache::Pin> pin_of(const launch::Problem& problem, const kernels::Config& config,
                          device::Device& device, launch::KernelCache& kernels) {
  if (const std::string why =
          kernels::why_config_is_invalid(problem.variant, device.info().traits,
                                         problem.vector_width, problem.largest_sizes(), config);
      !why.empty()) {
    return fail(StatusCode::kInvalidArgument,
                std::format("its config {} is invalid: {}", to_text(config), why));
  }
  DORAJIT_ASSIGN(const launch::ReadyKernel ready, kernels.get(device, problem.variant, config));
  cache::Pin entry{.device = device.info().fingerprint,
                   .problem = to_text(problem),
                   .config = ready.config,
                   .compiler = {},
                   .artifact = ready.artifact_key,
                   .code = ready.code_hash};
  if (ready.is_builtin) return entry;
  DORAJIT_ASSIGN(entry.compiler, kernels.compiler_identity(device.info().target));
  return entry;
}

ConfigAnswer locked_answer(const cache::Pins& pins, LockedMiss on_miss,
                           const launch::Problem& problem, device::Device& device,
                           launch::KernelCache& kernels) {
  const device::DeviceInfo& info = device.info();
  const Miss miss{.on_miss = on_miss, .path = *pins.locked_path(), .problem = problem};
  const ConfigAnswer standard{
      .config = kernels::default_config(problem.variant, info.traits, problem.vector_width,
                                        problem.largest_sizes()),
      .origin = ConfigOrigin::kDefault};
  const auto pin = pins.find(info.fingerprint, to_text(problem));
  if (!pin) {
    return miss(standard, std::format("it has no entry for this problem on {}", info.fingerprint),
                "its default config is used");
  }
  ConfigAnswer locked{.config = pin->config, .origin = ConfigOrigin::kLocked};
  bool has_config = false;
  const std::string why = why_not_as_locked(*pin, problem, device, kernels, has_config);
  if (why.empty()) return locked;
  return has_config ? miss(locked, why, "its config is used with that code")
                    : miss(standard, why, "its default config is used");
}

}  // namespace dorajit::autotune
