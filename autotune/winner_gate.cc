#include "autotune/winner_gate.h"

#include <algorithm>
#include <chrono>
#include <format>
#include <limits>
#include <span>
#include <string>

#include "autotune/host_mark.h"
#include "autotune/journal_entry.h"
#include "autotune/quarantine.h"
#include "kernel_templates/config_text.h"
#include "kernel_templates/spaces.h"
#include "runtime/base/hash.h"
#include "runtime/base/log.h"

namespace dorajit::autotune {
namespace {

using cache::Verdict;

// The machine is part of it: folders are copied, and containers made of images.
std::string key_of(std::string_view problem, const kernels::Config& config,
                   std::string_view fingerprint, const cache::Environment& environment) {
  return Hasher("verified/1")
      .add("host", host_mark())
      .add("device", fingerprint)
      .add("templates", environment.templates)
      .add("problem", problem)
      .add("config", to_text(config))
      .digest();
}

}  // namespace

WinnerGate::WinnerGate(const Settings& settings, cache::TuningStore& store)
    : seconds_(settings.tune_seconds),
      store_(store),
      verified_(settings.tuning_dir, {.group = settings.trust_group}),
      journal_(cache::LaunchJournal::open(settings.tuning_dir, {.group = settings.trust_group})) {}

void WinnerGate::remember(const launch::Problem& problem, const kernels::Config& config,
                          const device::DeviceInfo& device, const cache::Environment& environment) {
  verified_.add(key_of(to_text(problem), config, device.fingerprint, environment));
}

bool WinnerGate::admits(const cache::Winner& winner, const Candidacy& candidacy) {
  const launch::Problem& problem = candidacy.problem;
  const device::DeviceInfo& device = candidacy.device.info();
  const kernels::Config& config = winner.config;
  // Callers run that one with or without a database.
  if (config == kernels::default_config(problem.variant, device.traits, problem.vector_width)) {
    return true;
  }
  // A neighbour that serves its own problem on this device serves this one, too.
  const auto is_verified = [&](std::string_view of) {
    return verified_.contains(key_of(of, config, device.fingerprint, candidacy.environment));
  };
  if (is_verified(to_text(problem)) || is_verified(winner.problem)) return true;
  if (seconds_ == 0) return false;
  const std::scoped_lock lock(verifying_);
  if (is_verified(to_text(problem))) return true;
  if (!verify(config, candidacy)) return false;
  remember(problem, config, device, candidacy.environment);
  return true;
}

// Call with verifying_ held.
bool WinnerGate::verify(const kernels::Config& config, const Candidacy& candidacy) {
  const auto start = std::chrono::steady_clock::now();
  const launch::Problem& problem = candidacy.problem;
  const std::string what = std::format("config {} of {}", to_text(config), to_text(problem));
  const auto refuse = [&](std::string_view why) {
    log_once(LogLevel::kWarning, what,
             std::format("{} comes from a database and is not used: {}", what, why));
    return false;
  };
  const std::string scope = quarantine_scope(problem.variant, candidacy.device.info());
  if (std::ranges::contains(journal_->casualties(scope), config)) {
    condemn(config, Verdict::kDidNotFinish, candidacy);
    journal_->forget(scope, std::span(&config, 1));
    return refuse("a process that launched it for the first time did not go on");
  }
  const auto kernel = candidacy.kernels.get(candidacy.device, problem.variant, config);
  if (!kernel) return refuse(kernel.error().message);
  if (kernel->is_builtin) return true;
  const auto budget = std::chrono::duration_cast<std::chrono::steady_clock::duration>(
      std::chrono::duration<double>(seconds_));
  auto verifier = Verifier::make(problem, candidacy.device, start + budget);
  if (!verifier) {
    return refuse(std::format("it could not be verified: {}", verifier.error().message));
  }
  JournalEntry entry(journal_.get(), scope, problem, config);
  const auto checked = verifier->check(*kernel, &entry);
  const Verdict verdict = checked.value_or(Verdict::kFailedToLaunch);
  if (verdict == Verdict::kOk) {
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
    log(LogLevel::kInfo,
        std::format("{} comes from a database and was verified in {:.2f} s", what, spent.count()));
    return true;
  }
  condemn(config, verdict, candidacy);
  return refuse(checked ? std::format("it is quarantined: {}", name(verdict))
                        : checked.error().message);
}

void WinnerGate::condemn(const kernels::Config& config, Verdict verdict,
                         const Candidacy& candidacy) {
  constexpr double kNotMeasured = std::numeric_limits<double>::quiet_NaN();
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const cache::Trial trial{
      .problem = to_text(candidacy.problem),
      .device = candidacy.device.info().fingerprint,
      .environment = candidacy.environment,
      .config = config,
      .verdict = verdict,
      .median_ns = kNotMeasured,
      .mad_ns = kNotMeasured,
      .created_unix_s = std::chrono::duration_cast<std::chrono::seconds>(now).count(),
      .host = host_mark()};
  store_.merge(std::span(&trial, 1));
}

}  // namespace dorajit::autotune
