#include "autotune/tuning_config_source.h"

#include <chrono>
#include <cstdio>
#include <format>
#include <utility>

#include "autotune/host_mark.h"
#include "autotune/quarantine.h"
#include "autotune/tuning_report.h"
#include "kernel_templates/config_text.h"
#include "runtime/base/hash.h"
#include "runtime/base/log.h"

namespace dorajit::autotune {
namespace {

using launch::ConfigAnswer;
using launch::Rung;

// Shares of a problem's time that a winner is expected to save: for the daemon's order of work.
constexpr double kGainOverDefault = 0.2;
constexpr double kGainOverStaleWinner = 0.02;

std::int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string space_hash(const launch::Problem& problem, const device::DeviceInfo& device,
                       kernels::SpaceKind space) {
  Hasher hasher("space/1");
  for (const kernels::Config& config :
       kernels::config_space(problem.variant, device.traits, problem.vector_width, space)) {
    hasher.add("config", to_text(config));
  }
  return hasher.digest();
}

std::vector<kernels::Config> configs_of(const TuneResult& tuned) {
  std::vector<kernels::Config> configs;
  for (const TrialResult& trial : tuned.trials) configs.push_back(trial.config);
  return configs;
}

void keep_bad_only(std::vector<TrialResult>& trials) {
  std::erase_if(trials, [](const TrialResult& trial) { return !cache::is_bad(trial.verdict); });
}

std::vector<cache::Trial> trials_of(const TuneResult& tuned, const launch::Problem& problem,
                                    const std::string& device,
                                    const cache::Environment& environment, std::int64_t now) {
  const std::string host = host_mark();
  std::vector<cache::Trial> trials;
  for (const TrialResult& trial : tuned.trials) {
    trials.push_back({.problem = to_text(problem),
                      .device = device,
                      .environment = environment,
                      .config = trial.config,
                      .duel = trial.duel,
                      .verdict = trial.verdict,
                      .median_ns = trial.median_ns,
                      .mad_ns = trial.mad_ns,
                      .samples = trial.samples,
                      .created_unix_s = now,
                      .host = host});
  }
  return trials;
}

}  // namespace

kernels::SpaceKind space_kind(const Settings& settings) {
  return settings.comprehensive ? kernels::SpaceKind::kComprehensive : kernels::SpaceKind::kSlim;
}

cache::Environment environment_of(const launch::Problem& problem, const device::DeviceInfo& device,
                                  kernels::SpaceKind space) {
  return {.driver = device.driver_version,
          .policy = kMeasurementPolicy,
          .space = space_hash(problem, device, space),
          .tuner = kTunerVersion,
          .templates = hash_hex(kernels::source_identity(problem.variant, device.traits.kind))};
}

TuningConfigSource::TuningConfigSource(const Settings& settings,
                                       std::shared_ptr<cache::TuningStore> store,
                                       Statistics& statistics,
                                       std::unique_ptr<DaemonRequests> daemon)
    : settings_(settings),
      store_(std::move(store)),
      statistics_(statistics),
      journal_(cache::LaunchJournal::open(settings.tuning_dir, {.group = settings.trust_group})),
      gate_(settings, *store_),
      daemon_(std::move(daemon)) {}

void TuningConfigSource::set_listener(Listener listener) {
  if (daemon_ != nullptr) daemon_->set_listener(std::move(listener));
}

void TuningConfigSource::close() {
  if (daemon_ != nullptr) daemon_->close();
}

std::optional<ConfigAnswer> TuningConfigSource::tune(const launch::Problem& problem,
                                                     device::Device& device,
                                                     launch::KernelCache& kernels,
                                                     const cache::Environment& environment) {
  const auto start = std::chrono::steady_clock::now();
  const std::int64_t now = unix_seconds();
  const TuneLimits limits{.seconds = settings_.tune_seconds,
                          .scratch_bytes = settings_.scratch_bytes,
                          .space = space_kind(settings_),
                          .candidates = settings_.tune_candidates,
                          .left_out = quarantined_configs(*store_, problem.variant, device.info()),
                          .journal = journal_.get()};
  auto tuned = tune_problem(problem, device, kernels, limits, statistics_, progress_);
  if (!tuned) {
    log_once(LogLevel::kWarning, "tuning " + to_text(problem),
             std::format("{} could not be tuned: {}", to_text(problem), tuned.error().message));
    return std::nullopt;
  }
  const bool has_winner = tuned->is_conclusive && !tuned->failure;
  if (!has_winner) keep_bad_only(tuned->trials);
  const std::vector<cache::Trial> trials =
      trials_of(*tuned, problem, device.info().fingerprint, environment, now);
  if (!has_winner) {
    const std::string what = to_text(problem);
    if (!trials.empty()) store_->merge(trials);
    journal_->forget(quarantine_scope(problem.variant, device.info()), configs_of(*tuned));
    if (tuned->failure) {
      log_once(LogLevel::kWarning, "tuning " + what,
               std::format("{} could not be tuned: {}", what, tuned->failure->message));
    } else {
      log(LogLevel::kInfo,
          std::format("{} was not compared within {} s", what, settings_.tune_seconds));
    }
    return std::nullopt;
  }
  // First: a winner that a killed process left in the store must not be verified again.
  gate_.remember(problem, tuned->winner, device.info(), environment);
  store_->record(trials, {.problem = to_text(problem),
                          .device = device.info().fingerprint,
                          .environment = environment,
                          .config = tuned->winner,
                          .default_config = tuned->default_config,
                          .median_ns = tuned->winner_ns,
                          .default_median_ns = tuned->default_ns,
                          .created_unix_s = now});
  journal_->forget(quarantine_scope(problem.variant, device.info()), configs_of(*tuned));
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
  if (settings_.print_autotuning) {
    const std::string report = tuning_report(problem, *tuned, spent.count());
    std::fwrite(report.data(), 1, report.size(), stderr);
  }
  log(LogLevel::kInfo,
      std::format("tuned {} on {} in {:.2f} s: {} at {:.2f} us, default {} at {:.2f} us",
                  to_text(problem), device.info().name, spent.count(), to_text(tuned->winner),
                  tuned->winner_ns / 1e3, to_text(tuned->default_config), tuned->default_ns / 1e3));
  return ConfigAnswer{.config = tuned->winner,
                      .rung = Rung::kTuned,
                      .median_ns = tuned->winner_ns,
                      .default_median_ns = tuned->default_ns,
                      .trials = static_cast<int>(tuned->trials.size())};
}

std::vector<RungLook> TuningConfigSource::verified(LookUp look_up, LadderQuestion& question,
                                                   device::Device& device,
                                                   launch::KernelCache& kernels) {
  const Candidacy candidacy{.problem = question.problem,
                            .device = device,
                            .kernels = kernels,
                            .environment = question.environment};
  for (;;) {
    std::vector<RungLook> looks = look_up(*store_, question);
    const RungLook& best = best_of(looks);
    if (!best.answers || !best.winner || gate_.admits(*best.winner, candidacy)) return looks;
    question.rejected.push_back(best.winner->config);
  }
}

ConfigAnswer TuningConfigSource::find(const launch::Problem& problem, device::Device& device,
                                      launch::KernelCache& kernels) {
  const cache::Environment environment =
      environment_of(problem, device.info(), space_kind(settings_));
  LadderQuestion question{.problem = problem,
                          .device = device.info(),
                          .environment = environment,
                          .only_same_space = settings_.comprehensive};
  std::vector<RungLook> looks = verified(look_up_exactly, question, device, kernels);
  const bool may_tune = settings_.tune_policy != TunePolicy::kOff && settings_.tune_seconds != 0;
  const auto is_known = [&] { return best_of(looks).answers; };
  const auto is_fresh = [&] { return is_known() && !best_of(looks).is_stale; };
  if (is_fresh() || (is_known() && !may_tune)) return answer_of(best_of(looks), question);
  DaemonRequests::Launches awaited;
  // The daemon tunes for all processors of the machine.
  const bool may_ask =
      device.info().traits.kind != kernels::DeviceKind::kCpu || settings_.cpu_threads == 0;
  if (may_tune && daemon_ != nullptr && may_ask) {
    awaited = daemon_->ask(problem, device, space_kind(settings_),
                           is_known() ? kGainOverStaleWinner : kGainOverDefault);
  }
  if (may_tune && !awaited && settings_.tune_policy != TunePolicy::kDaemon) {
    // Another process or thread may be tuning this very problem: its result serves both.
    const auto patience = std::chrono::milliseconds(
        static_cast<std::int64_t>(settings_.tune_seconds * 1000) + 10'000);
    const auto claim =
        store_->wait_for_claim(device.info().fingerprint, to_text(problem), patience);
    const std::scoped_lock lock(tuning_);
    question.patience = cache::Patience::kLong;
    looks = verified(look_up_exactly, question, device, kernels);
    if (is_fresh()) return answer_of(best_of(looks), question);
    if (claim) {
      if (auto tuned = tune(problem, device, kernels, environment)) return *std::move(tuned);
      looks = verified(look_up_exactly, question, device, kernels);
    }
  }
  if (!is_known()) looks = verified(look_at_neighbours, question, device, kernels);
  ConfigAnswer answer = answer_of(best_of(looks), question);
  answer.launches = std::move(awaited);
  return answer;
}

std::vector<RungLook> TuningConfigSource::explain(const launch::Problem& problem,
                                                  const device::DeviceInfo& device) {
  const cache::Environment environment = environment_of(problem, device, space_kind(settings_));
  const LadderQuestion question{.problem = problem,
                                .device = device,
                                .environment = environment,
                                .only_same_space = settings_.comprehensive};
  std::vector<RungLook> looks = look_up_exactly(*store_, question);
  if (best_of(looks).answers) return looks;
  for (RungLook& look : look_at_neighbours(*store_, question)) looks.push_back(std::move(look));
  return looks;
}

}  // namespace dorajit::autotune
