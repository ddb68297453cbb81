#include "autotune/sources/winner_gate.h"

#include <algorithm>
#include <format>
#include <limits>
#include <span>
#include <string>

#include "autotune/search/tuning_session.h"
#include "autotune/search/verification.h"
#include "kernel_templates/config.h"
#include "runtime/base/hash.h"
#include "runtime/base/log.h"

namespace dorajit::autotune {
namespace {

using cache::Verdict;

// Everything that determines the code that runs and the machine that runs it. The machine is
// included because folders are copied and containers are made from images.
std::string key_of(std::string_view problem, const kernels::Config& config,
                   const TuningSession& session, launch::KernelCache& kernels) {
  // Without a compiler nothing can be verified, so no stored key contains this text.
  const std::string compiler =
      kernels.compiler_identity(session.device.target).value_or("no compiler");
  return Hasher("verified/2")
      .add("host", host_id())
      .add("device", session.device.fingerprint)
      .add("driver", session.environment.driver)
      .add("compiler", compiler)
      .add("templates", session.environment.templates)
      .add("problem", problem)
      .add("config", to_text(config))
      .digest();
}

}  // namespace

WinnerGate::WinnerGate(const Settings& settings, cache::TuningStore& store,
                       cache::LaunchJournal& journal)
    : store_(store),
      journal_(journal),
      notes_(settings.tuning_dir, cache::kDefaultArtifactBytes, {.group = settings.trust_group}) {}

void WinnerGate::remember(const kernels::Config& config, const TuningSession& session,
                          launch::KernelCache& kernels) {
  const std::string key = key_of(session.problem_text, config, session, kernels);
  if (!notes_.find_note(key)) notes_.insert_note(key, "verified");
}

bool WinnerGate::admits(const cache::Winner& winner, TuningSession& session, device::Device& device,
                        launch::KernelCache& kernels) {
  const kernels::Config& config = winner.config;
  // Callers run the default config with or without a database.
  if (config == session.default_config()) return true;
  // A neighbour that is verified for its own problem on this device may be used for this one, too.
  const auto is_verified = [&](std::string_view of) {
    return notes_.find_note(key_of(of, config, session, kernels)).has_value();
  };
  if (is_verified(session.problem_text) || is_verified(winner.problem)) return true;
  if (session.time_left <= Seconds::zero()) return false;
  const std::scoped_lock lock(verifying_);
  if (is_verified(session.problem_text)) return true;
  const TimeSpent verifying(session);  // excludes the wait for another lookup
  const Finding finding = verify(config, session, device, kernels);
  if (finding == Finding::kRight) remember(config, session, kernels);
  return finding != Finding::kRefused;
}

// Call while holding verifying_.
WinnerGate::Finding WinnerGate::verify(const kernels::Config& config, const TuningSession& session,
                                       device::Device& device, launch::KernelCache& kernels) {
  const Moment start = session.now();
  const std::string what = std::format("config {} of {}", to_text(config), session.problem_text);
  const auto refuse = [&](std::string_view why) {
    log_once(LogLevel::kWarning, what,
             std::format("{} comes from a database and is not used: {}", what, why));
    return Finding::kRefused;
  };
  if (std::ranges::contains(journal_.crashed_configs(session.scope), config)) {
    condemn(config, Verdict::kDidNotFinish, session);
    journal_.forget(session.scope, std::span(&config, 1));
    return refuse("a process that launched it for the first time crashed or hung");
  }
  const auto kernel = kernels.get(device, session.problem.variant, config);
  if (!kernel) return refuse(kernel.error().message);
  if (kernel->is_builtin) return Finding::kNotRun;
  // Compiling does not count: without the winner, the default config would have to be compiled.
  const Moment deadline = after(session.now(), session.time_left);
  auto verifier =
      Verifier::make(session.problem, device, nullptr, [&] { return session.now() >= deadline; });
  if (!verifier) {
    return refuse(std::format("it could not be verified: {}", verifier.error().message));
  }
  if (session.problem.variant.operation->reference == nullptr) {
    const auto standard = kernels.get(device, session.problem.variant, session.default_config());
    if (!standard) return refuse(standard.error().message);
    const auto defined = verifier->define_reference(*standard);
    if (!defined) return refuse(defined.error().message);
    if (*defined != Verdict::kOk) return refuse("the default config writes out of bounds");
  }
  const auto checked = verifier->check(*kernel, {.journal = &journal_,
                                                 .scope = session.scope,
                                                 .problem = session.problem_text,
                                                 .config = config});
  const Verdict verdict = checked.value_or(Verdict::kFailedToLaunch);
  if (verdict == Verdict::kOk) {
    const Seconds spent = session.now() - start;
    log(LogLevel::kInfo,
        std::format("{} comes from a database and was verified in {:.2f} s", what, spent.count()));
    return Finding::kRight;
  }
  condemn(config, verdict, session);
  return refuse(checked ? std::format("it is quarantined: {}", name(verdict))
                        : checked.error().message);
}

void WinnerGate::condemn(const kernels::Config& config, Verdict verdict,
                         const TuningSession& session) {
  constexpr double kNotMeasured = std::numeric_limits<double>::quiet_NaN();
  const cache::Trial trial{.problem = session.problem_text,
                           .device = session.device.fingerprint,
                           .environment = session.environment,
                           .config = config,
                           .default_config = session.default_config(),
                           .verdict = verdict,
                           .median_ns = kNotMeasured,
                           .mad_ns = kNotMeasured,
                           .created_unix_s = cache::now_unix_s(),
                           .host = host_id()};
  store_.merge(std::span(&trial, 1));
}

}  // namespace dorajit::autotune
