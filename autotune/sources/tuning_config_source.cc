#include "autotune/sources/tuning_config_source.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <format>
#include <utility>

#include "autotune/search/tuning_session.h"
#include "autotune/sources/pinned_config.h"
#include "kernel_templates/config.h"
#include "kernel_templates/template.h"
#include "runtime/base/file_descriptor.h"
#include "runtime/base/log.h"

namespace dorajit::autotune {
namespace {

using launch::ConfigAnswer;
using launch::ConfigOrigin;

// Expected share of a problem's time that a winner saves, by which the daemon orders its work.
constexpr double kGainOverDefault = 0.2;
constexpr double kGainOverStaleWinner = 0.02;

std::vector<kernels::Config> configs_of(const std::vector<TrialResult>& trials) {
  std::vector<kernels::Config> configs;
  for (const TrialResult& trial : trials) configs.push_back(trial.config);
  return configs;
}

std::vector<cache::Trial> records_of(const std::vector<TrialResult>& results,
                                     const TuningSession& session, std::int64_t now) {
  const std::string host = host_id();
  std::vector<cache::Trial> trials;
  for (const TrialResult& trial : results) {
    trials.push_back({.problem = session.problem_text,
                      .device = session.device.fingerprint,
                      .environment = session.environment,
                      .config = trial.config,
                      .default_config = session.default_config(),
                      .comparison = trial.comparison,
                      .verdict = trial.verdict,
                      .median_ns = trial.median_ns,
                      .mad_ns = trial.mad_ns,
                      .samples = trial.samples,
                      .created_unix_s = now,
                      .host = host});
  }
  return trials;
}

// The configs that were measured with the winner, the fastest first. `trials` are in order of
// recording.
std::vector<kernels::Config> runners_up(const kernels::Config& winner,
                                        const std::vector<cache::Trial>& trials,
                                        const TuningSession& session) {
  const auto won = std::ranges::find_last(trials, winner, &cache::Trial::config);
  if (won.empty()) return {};
  const cache::Trial& run = won.front();
  std::vector<const cache::Trial*> others;
  for (const cache::Trial& trial : trials) {
    if (trial.verdict == cache::Verdict::kOk && trial.median_ns > 0 &&
        trial.environment == run.environment && trial.created_unix_s == run.created_unix_s &&
        trial.host == run.host && trial.config != winner &&
        !std::ranges::contains(session.quarantined, trial.config) &&
        std::ranges::contains(session.space, trial.config)) {
      others.push_back(&trial);
    }
  }
  std::ranges::sort(others, {}, &cache::Trial::median_ns);
  std::vector<kernels::Config> configs;
  for (const cache::Trial* trial : others) configs.push_back(trial->config);
  return configs;
}

}  // namespace

kernels::SpaceKind space_kind(const Settings& settings) {
  return settings.comprehensive ? kernels::SpaceKind::kComprehensive : kernels::SpaceKind::kSlim;
}

TuningConfigSource::TuningConfigSource(const Settings& settings,
                                       std::shared_ptr<cache::TuningStore> store,
                                       Statistics& statistics,
                                       std::unique_ptr<DaemonRequests> daemon, Clock clock)
    : settings_(settings),
      store_(std::move(store)),
      statistics_(statistics),
      journal_(cache::LaunchJournal::open(settings.tuning_dir, {.group = settings.trust_group})),
      gate_(settings, *store_, *journal_),
      daemon_(std::move(daemon)),
      clock_(std::move(clock)) {}

void TuningConfigSource::set_listener(Listener listener) {
  if (daemon_ != nullptr) daemon_->set_listener(std::move(listener));
}

void TuningConfigSource::close() {
  if (daemon_ != nullptr) daemon_->close();
}

void TuningConfigSource::note_failure(TuningSession& session, const TuneFailure& failure,
                                      std::int64_t now) {
  if (!failure.trials.empty()) {
    session.quarantine(configs_of(failure.trials));
    store_->merge(records_of(failure.trials, session, now));
    journal_->forget(session.scope, configs_of(failure.trials));
  }
  if (failure.is_inconclusive) return log(LogLevel::kInfo, failure.message);
  log_once(LogLevel::kWarning, "tuning " + session.problem_text,
           std::format("{} could not be tuned: {}", session.problem_text, failure.message));
}

Result<ConfigAnswer> TuningConfigSource::tune(TuningSession& session, device::Device& device,
                                              launch::KernelCache& kernels) {
  if (session.time_left <= Seconds::zero()) {
    std::string why =
        std::format("{} is not tuned now: verifying winners from a database took all of its {} s",
                    session.problem_text, settings_.tune_seconds);
    log(LogLevel::kInfo, why);
    return fail(StatusCode::kUnsupported, std::move(why));
  }
  const TimeSpent tuning(session);
  const std::int64_t now = cache::now_unix_s();
  const TuneLimits limits{.seconds = session.time_left.count(),
                          .scratch_bytes = settings_.scratch_bytes,
                          .candidates = settings_.tune_candidates,
                          .journal = journal_.get()};
  const auto tuned = tune_problem(session, device, kernels, limits, statistics_);
  if (!tuned) {
    note_failure(session, tuned.error(), now);
    return std::unexpected<Error>(tuned.error());
  }
  // First: a winner that a killed process left in the store must not be verified again.
  gate_.remember(tuned->winner, session, kernels);
  store_->record(records_of(tuned->trials, session, now), {.problem = session.problem_text,
                                                           .device = session.device.fingerprint,
                                                           .environment = session.environment,
                                                           .config = tuned->winner,
                                                           .default_config = tuned->default_config,
                                                           .median_ns = tuned->winner_ns,
                                                           .default_median_ns = tuned->default_ns,
                                                           .created_unix_s = now});
  journal_->forget(session.scope, configs_of(tuned->trials));
  const Seconds spent = tuning.passed();
  if (settings_.print_autotuning) {
    const std::string report = tuning_report(session.problem, *tuned, spent.count());
    const FileSizeSignalBlock no_signal;
    std::fwrite(report.data(), 1, report.size(), stderr);
  }
  log(LogLevel::kInfo,
      std::format("tuned {} on {} in {:.2f} s: {} at {:.2f} us, default {} at {:.2f} us",
                  session.problem_text, session.device.name, spent.count(), to_text(tuned->winner),
                  tuned->winner_ns / 1e3, to_text(tuned->default_config), tuned->default_ns / 1e3));
  return ConfigAnswer{.config = tuned->winner,
                      .origin = ConfigOrigin::kTuned,
                      .median_ns = tuned->winner_ns,
                      .default_median_ns = tuned->default_ns,
                      .trials = static_cast<int>(tuned->trials.size())};
}

std::vector<LookupResult> TuningConfigSource::verified(LookUp look_up, TuningSession& session,
                                                       device::Device& device,
                                                       launch::KernelCache& kernels) {
  for (;;) {
    std::vector<LookupResult> looks = look_up(*store_, session);
    const LookupResult& best = best_of(looks);
    if (!best.answers || !best.winner || gate_.admits(*best.winner, session, device, kernels)) {
      return looks;
    }
    session.rejected.push_back(best.winner->config);
  }
}

ConfigAnswer TuningConfigSource::find(const launch::Problem& problem, device::Device& device,
                                      launch::KernelCache& kernels) {
  if (store_->pins().locked_path() != nullptr) {
    return locked_answer(store_->pins(), settings_.locked_miss, problem, device, kernels);
  }
  TuningSession session(problem, device.info(), space_kind(settings_), clock_);
  session.time_left = Seconds(settings_.tune_seconds);
  ConfigAnswer answer = find_in(session, device, kernels);
  const bool is_measured =
      answer.origin == ConfigOrigin::kTuned || answer.origin == ConfigOrigin::kUserDatabase;
  if (is_measured && kernels::template_of(problem.variant).fits_by_call) {
    answer.runners_up = runners_up(
        answer.config, store_->trials(device.info().fingerprint, session.problem_text), session);
  }
  return answer;
}

ConfigAnswer TuningConfigSource::find_in(TuningSession& session, device::Device& device,
                                         launch::KernelCache& kernels) {
  const launch::Problem& problem = session.problem;
  std::vector<LookupResult> looks = verified(find_exact, session, device, kernels);
  const bool may_tune = settings_.tune_policy != TunePolicy::kOff && settings_.tune_seconds != 0 &&
                        session.has_choice();
  const auto is_known = [&] { return best_of(looks).answers; };
  const auto is_fresh = [&] { return is_known() && !best_of(looks).is_stale; };
  if (is_fresh() || (is_known() && !may_tune)) return answer_of(best_of(looks), session);
  DaemonRequests::Launches awaited;
  std::string why_untuned;
  if (settings_.tune_seconds == 0) why_untuned = "DORAJIT_TUNE_SECONDS is 0";
  // The daemon tunes CPU problems for all processors of the machine.
  const bool may_ask =
      device.info().traits.kind != kernels::DeviceKind::kCpu || settings_.cpu_threads == 0;
  if (may_tune && daemon_ != nullptr && may_ask) {
    awaited = daemon_->ask(problem, device, session.space_kind,
                           is_known() ? kGainOverStaleWinner : kGainOverDefault);
  }
  if (may_tune && !awaited && settings_.tune_policy != TunePolicy::kDaemon) {
    // Another process or thread may be tuning the same problem: its result serves both.
    const auto max_wait = std::chrono::milliseconds(
        static_cast<std::int64_t>(settings_.tune_seconds * 1000) + 10'000);
    const auto claim = store_->claim(session.device.fingerprint, session.problem_text, max_wait);
    const std::scoped_lock lock(tuning_);
    // Another process that has tuned since the database was read may have added this winner, or bad
    // configs of the variant.
    session.lock_wait = cache::LockWait::kLong;
    session.history.reset();
    looks = verified(find_exact, session, device, kernels);
    if (is_fresh()) return answer_of(best_of(looks), session);
    if (!claim) why_untuned = "another process is tuning it";
    if (claim) {
      auto tuned = tune(session, device, kernels);
      if (tuned) return *std::move(tuned);
      why_untuned = std::move(tuned.error().message);
      looks = verified(find_exact, session, device, kernels);
    }
  }
  if (!is_known()) looks = verified(find_nearest, session, device, kernels);
  ConfigAnswer answer = answer_of(best_of(looks), session);
  answer.launches = std::move(awaited);
  answer.is_only = !session.has_choice();
  answer.why_untuned = std::move(why_untuned);
  return answer;
}

std::vector<LookupResult> TuningConfigSource::explain(const launch::Problem& problem,
                                                      const device::DeviceInfo& device) {
  TuningSession session(problem, device, space_kind(settings_));
  std::vector<LookupResult> looks = find_exact(*store_, session);
  if (best_of(looks).answers) return looks;
  for (LookupResult& look : find_nearest(*store_, session)) looks.push_back(std::move(look));
  return looks;
}

std::string tuning_report(const launch::Problem& problem, const TuneResult& result,
                          double seconds) {
  return std::format(
      "dorajit autotuning for kernel {}, with key as {}, finished after {:.2f}s, best config "
      "selected: {}; {:.2f} us, default {} {:.2f} us, {} configs\n",
      problem.variant.operation->name, to_text(problem), seconds, to_text(result.winner),
      result.winner_ns / 1e3, to_text(result.default_config), result.default_ns / 1e3,
      result.trials.size());
}

}  // namespace dorajit::autotune
