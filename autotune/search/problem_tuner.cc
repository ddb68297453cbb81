#include "autotune/search/problem_tuner.h"

#include <algorithm>
#include <format>
#include <functional>
#include <limits>
#include <memory>
#include <span>

#include "autotune/search/measurement.h"
#include "autotune/search/scratch_operands.h"
#include "autotune/search/scratch_shape.h"
#include "autotune/search/set_difference.h"
#include "autotune/search/tournament.h"
#include "autotune/search/tuning_session.h"
#include "autotune/search/verification.h"
#include "kernel_templates/config.h"
#include "kernel_templates/template.h"
#include "runtime/base/log.h"

namespace dorajit::autotune {
namespace {

using cache::Verdict;
using launch::ReadyKernel;

// Configs. Every slim space of the library is smaller.
constexpr std::size_t kSmallSpace = 128;

// Share of the time budget, regardless of how long compiling and verifying took.
constexpr double kMinMeasuringShare = 0.25;
// Rounds that rank the fastest candidates well enough to look at their neighbours.
constexpr int kScoutingRounds = 3;

// Where the session's configs are launched for the first time.
struct FirstLaunches {
  const TuningSession& session;
  cache::LaunchJournal* journal;

  [[nodiscard]] JournalPlace place_of(const Candidate& candidate) const {
    return {.journal = journal,
            .scope = session.scope,
            .problem = session.problem_text,
            .config = candidate.result.config};
  }
};

// Eliminates a candidate that does not produce the right bits.
void verify(Candidate& candidate, Verifier& verifier, const FirstLaunches& launches) {
  const auto checked = verifier.check(*candidate.kernel, launches.place_of(candidate));
  const Verdict verdict = checked.value_or(Verdict::kFailedToLaunch);
  if (verdict == Verdict::kOk) return;
  candidate.result.verdict = verdict;
  candidate.kernel.reset();
  log(LogLevel::kWarning,
      std::format("config {} of {} is quarantined: {}", to_text(candidate.result.config),
                  launches.session.problem_text,
                  checked ? name(verdict) : checked.error().message));
}

// From number `first` on, before timing. Candidates for which there is no time are removed and
// returned.
std::vector<kernels::Config> verify_untimed(std::vector<Candidate>& candidates, std::size_t first,
                                            Verifier& verifier, const FirstLaunches& launches,
                                            Moment deadline) {
  for (std::size_t i = first; i < candidates.size(); ++i) {
    if (i > 0 && launches.session.now() >= deadline) {
      return remove_from(candidates, i);
    }
    if (candidates[i].kernel) verify(candidates[i], verifier, launches);
  }
  return {};
}

// Verifies again those candidates that were timed often enough to win.
void verify_timed(std::vector<Candidate>& candidates, Verifier& verifier,
                  const FirstLaunches& launches) {
  for (Candidate& candidate : candidates) {
    if (candidate.kernel && candidate.result.samples >= cache::kMinSamples) {
      verify(candidate, verifier, launches);
    }
  }
}

// Runs the tournament within `seconds`. Each stage gets a share of the time and passes on what it
// does not use. The shares grow when so many candidates are eliminated that stages are skipped.
void play(Tournament& tournament, RoundSampler& sampler, double seconds, const Clock& now) {
  const Moment deadline = after(now(), Seconds(seconds));
  while (const int stages = tournament.stages_left()) {
    const Moment start = now();
    const Moment stage_end = start + (deadline - start) / stages;
    while (tournament.stages_left() == stages && !tournament.stage_is_decided() &&
           (now() < stage_end || tournament.stage_needs_rounds())) {
      tournament.add_round(sampler.sample(tournament.running()));
    }
    if (tournament.stages_left() == stages) tournament.end_stage();
  }
}

// The candidates that have a kernel, in their order.
std::vector<Candidate*> contestants(std::span<Candidate> candidates) {
  std::vector<Candidate*> chosen;
  for (Candidate& candidate : candidates) {
    if (candidate.kernel) chosen.push_back(&candidate);
  }
  return chosen;
}

std::vector<Work> work_of(const std::vector<Candidate*>& contestants,
                          const ScratchOperands& scratch, device::Device& device) {
  std::vector<Work> work;
  for (const Candidate* candidate : contestants) {
    work.emplace_back(
        [&device, &scratch, kernel = *candidate->kernel](device::Stream stream, std::int64_t set) {
          return device.launch(*kernel.kernel, kernel.config, scratch.arguments(set), stream);
        });
  }
  return work;
}

// Launches each candidate once on the operands on which it will be timed: they are larger than
// those of its verification, so it may hang only here.
void rehearse(const std::vector<Candidate*>& contestants, const std::vector<Work>& work,
              device::Device& device, const FirstLaunches& launches) {
  if (launches.journal == nullptr) return;
  for (std::size_t i = 0; i < contestants.size(); ++i) {
    const auto entry = launches.place_of(*contestants[i]).enter();
    // A candidate that fails here fails again when it is timed, and is eliminated there.
    if (work[i](device.own_stream(), 0)) (void)device.synchronize(device.own_stream());
  }
}

MeasurementPlan plan_of(const ScratchOperands& scratch, const device::Device& device) {
  return {.sets = scratch.sets(),
          .settling_launches = launches_to_settle(device.info(), scratch.set_bytes())};
}

bool are_neighbours(const kernels::Config& a, const kernels::Config& b) {
  return std::ranges::count_if(a.tunables(), [&](const kernels::Tunable& tunable) {
           return b[tunable.mark] != tunable.value;
         }) == 1;
}

// Stores the measurements, and eliminates candidates that failed during them.
void note_measurements(const std::vector<Candidate*>& contestants, const Tournament& tournament,
                       const RoundSampler& sampler) {
  for (std::size_t i = 0; i < contestants.size(); ++i) {
    Candidate& candidate = *contestants[i];
    if (!sampler.status(i)) {
      candidate.result.verdict = Verdict::kFailedToLaunch;
      candidate.kernel.reset();
      continue;
    }
    const auto times = tournament.times(i);
    if (times.empty()) continue;
    candidate.result.median_ns = median(times);
    candidate.result.mad_ns = median_absolute_deviation(times);
    candidate.result.samples = static_cast<int>(times.size());
  }
  if (const std::size_t challenger = tournament.challenger(); challenger != 0) {
    contestants[challenger]->result.comparison = tournament.final_comparison();
  }
}

std::unexpected<Error> default_is_broken(const launch::Problem& problem, const Candidate& candidate,
                                         const Result<Verdict>& checked) {
  if (!checked) return std::unexpected(checked.error());
  if (problem.variant.operation->reference == nullptr) {
    return fail(
        StatusCode::kUnsupported,
        *checked == Verdict::kOutOfBounds
            ? std::format("the default config {} of {} writes to an input, or before, after or "
                          "between the elements of an output; no other config is tried",
                          to_text(candidate.result.config), to_text(problem))
        : problem.variant.operation->tolerance > 0
            ? std::format("the default config {} of {} gives outputs that differ by more than the "
                          "kernel's tolerance when it runs twice, so no other config can be "
                          "compared with it; integers, NaN and infinity must be the same bits",
                          to_text(candidate.result.config), to_text(problem))
            : std::format("the default config {} of {} does not give the same bits twice, so no "
                          "other config can be compared with it; if its outputs are floating-point "
                          "numbers, give the kernel a tolerance",
                          to_text(candidate.result.config), to_text(problem)));
  }
  return fail(StatusCode::kInternal,
              std::format("the default config {} of {} does not produce the reference's bits on "
                          "this device; please report this",
                          to_text(candidate.result.config), to_text(problem)));
}

// The configs with which an earlier process crashed or hung, in this space or another. Without the
// default, which callers run with or without tuning.
std::vector<kernels::Config> crashed_configs_of(const FirstLaunches& launches) {
  std::vector<kernels::Config> found;
  if (launches.journal == nullptr) return found;
  for (const kernels::Config& config : launches.journal->crashed_configs(launches.session.scope)) {
    if (config == launches.session.default_config() ||
        std::ranges::find(found, config) != found.end())
      continue;
    found.push_back(config);
    log(LogLevel::kWarning, std::format("config {} is quarantined: a process that launched it for "
                                        "the first time crashed or hung",
                                        to_text(config)));
  }
  return found;
}

// The candidates that misbehaved, as far as that is known: a launch that follows a failed one may
// fail because of it.
std::vector<TrialResult> caught(const std::vector<Candidate>& candidates) {
  std::vector<TrialResult> found;
  for (const Candidate& candidate : candidates) {
    if (cache::is_bad(candidate.result.verdict)) found.push_back(candidate.result);
    if (candidate.result.verdict == Verdict::kFailedToLaunch) break;
  }
  return found;
}

std::unexpected<TuneFailure> not_compared(const TuningSession& session, const TuneLimits& limits,
                                          std::vector<TrialResult> trials) {
  std::erase_if(trials, [](const TrialResult& trial) { return !cache::is_bad(trial.verdict); });
  TuneFailure failure({.code = StatusCode::kUnsupported,
                       .message = std::format("{} was not compared within {} s",
                                              session.problem_text, limits.seconds),
                       .log = {}},
                      std::move(trials));
  failure.is_inconclusive = true;
  return std::unexpected(std::move(failure));
}

// Compiles and verifies the neighbours of the fastest candidate, which differ from it in one
// parameter, among the configs that were not tried; then those of the fastest of all these, and so
// on until all its neighbours are tried.
void explore(std::vector<Candidate>& candidates, std::vector<kernels::Config> untried,
             Verifier& verifier, const FirstLaunches& launches, device::Device& device,
             launch::KernelCache& kernels, const ScratchOperands& scratch,
             const std::function<Moment()>& next_deadline, const std::function<Moment()>& end) {
  const Clock& now = launches.session.now;
  const Moment deadline = next_deadline();
  std::size_t first = 0;  // candidate that was not timed
  kernels::Config fastest;
  double least_ns = std::numeric_limits<double>::infinity();
  while (!untried.empty() && now() < deadline) {
    const auto competing = contestants(std::span(candidates).subspan(first));
    const std::vector<Work> work = work_of(competing, scratch, device);
    rehearse(competing, work, device, launches);
    MeasurementPlan plan = plan_of(scratch, device);
    plan.rounds = kScoutingRounds;
    plan.seconds = Seconds(deadline - now()).count();
    plan.now = now;
    const std::vector<Measurement> measured = measure_interleaved(device, work, plan);
    for (std::size_t i = 0; i < measured.size(); ++i) {
      if (!measured[i].status || measured[i].median_ns >= least_ns) continue;
      least_ns = measured[i].median_ns;
      fastest = competing[i]->result.config;
    }
    first = candidates.size();
    std::erase_if(untried, [&](const kernels::Config& config) {
      if (!are_neighbours(config, fastest)) return false;
      candidates.push_back({.result = {.config = config}, .kernel = {}});
      return true;
    });
    if (candidates.size() == first) return;
    (void)make_kernels(candidates, first, launches.session, device, kernels, deadline, end());
    // The last compilations may have ended after the deadline; what they made is verified.
    (void)verify_untimed(candidates, first, verifier, launches, next_deadline());
  }
}

// Times the candidates that have a kernel, and chooses the winner.
Result<Candidate*> choose(std::vector<Candidate>& candidates, Verifier& verifier,
                          const FirstLaunches& launches, device::Device& device,
                          const ScratchOperands& scratch, double seconds) {
  Candidate& standard = candidates.front();
  const std::vector<Candidate*> competing = contestants(candidates);
  const std::vector<Work> work = work_of(competing, scratch, device);
  rehearse(competing, work, device, launches);
  RoundSampler sampler(device, work, plan_of(scratch, device));
  Tournament tournament(competing.size());
  play(tournament, sampler, seconds, launches.session.now);
  note_measurements(competing, tournament, sampler);
  verify_timed(candidates, verifier, launches);
  // A candidate that computed wrong bits only after some time cannot win.
  while (standard.kernel && tournament.winner() != 0 && !competing[tournament.winner()]->kernel) {
    tournament.disqualify_challenger();
    play(tournament, sampler, seconds * kMinMeasuringShare, launches.session.now);
    note_measurements(competing, tournament, sampler);
    verify_timed(candidates, verifier, launches);
  }
  if (!standard.kernel) {
    return fail(StatusCode::kDriverError,
                std::format("the default config of {} failed while it was measured",
                            launches.session.problem_text));
  }
  return competing[tournament.winner()];
}

}  // namespace

std::expected<TuneResult, TuneFailure> tune_problem(const TuningSession& session,
                                                    device::Device& device,
                                                    launch::KernelCache& kernels,
                                                    const TuneLimits& limits,
                                                    Statistics& statistics) {
  const Clock& now = session.now;
  const Moment start = now();
  const launch::Problem& problem = session.problem;
  const FirstLaunches launches{.session = session, .journal = limits.journal};
  const std::vector<kernels::Config> crashed_configs = crashed_configs_of(launches);
  std::vector<kernels::Config> left_out = session.quarantined;
  left_out.insert(left_out.end(), crashed_configs.begin(), crashed_configs.end());
  std::vector<Candidate> candidates;
  for (const kernels::Config& config :
       choose_configs(session.space, session.space_kind, left_out, limits.candidates)) {
    candidates.push_back({.result = {.config = config}, .kernel = {}});
  }
  // The vector never has more candidates than now, so references to them stay valid.
  Candidate& standard = candidates.front();

  DORAJIT_ASSIGN(ReadyKernel ready, kernels.get(device, problem.variant, standard.result.config));
  if (ready.is_builtin) {
    return not_compared(session, limits, {});
  }
  standard.kernel = std::move(ready);
  DORAJIT_ASSIGN(const ScratchShape shape, measured_shape(problem, device, limits.scratch_bytes));
  DORAJIT_TRY(check_default_fits(standard, problem, device, shape));
  drop_misfits(candidates, problem, device, shape);
  std::unique_ptr<const SetDifference> difference;
  if (auto made = SetDifference::make(device, kernels)) {
    difference = std::make_unique<SetDifference>(*std::move(made));
  }
  DORAJIT_ASSIGN(Verifier verifier, Verifier::make(problem, device, std::move(difference)));
  // Without a host reference the first run defines the expected outputs; the second compares.
  if (const auto defined = verifier.define_reference(*standard.kernel);
      !defined || *defined != Verdict::kOk) {
    return default_is_broken(problem, standard, defined);
  }
  if (const auto checked = verifier.check(*standard.kernel); !checked || *checked != Verdict::kOk) {
    return default_is_broken(problem, standard, checked);
  }
  const auto left = [&] {
    const Seconds spent = now() - start;
    return std::max(limits.seconds * kMinMeasuringShare, limits.seconds - spent.count());
  };
  const auto end = [&] { return after(now(), Seconds(left())); };
  // A small slim space is compiled and verified completely. In any other space each stage has half
  // of the time that the stage before left: its last compilations may have taken long.
  const auto deadline = [&] {
    return session.space_kind == kernels::SpaceKind::kSlim && session.space.size() <= kSmallSpace
               ? Moment::max()
               : after(now(), Seconds(left() / 2));
  };
  const Moment begun = now();
  std::vector<kernels::Config> untried =
      make_kernels(candidates, 1, session, device, kernels, deadline(), end());
  const Moment compiled = now();
  const std::size_t num_compiled = candidates.size();
  const auto unverified = verify_untimed(candidates, 0, verifier, launches, deadline());
  untried.insert(untried.end(), unverified.begin(), unverified.end());
  const Moment verified = now();
  const std::size_t num_verified = candidates.size();
  const auto scratch = ScratchOperands::make(device, problem.variant, shape);
  if (!scratch) return std::unexpected(TuneFailure(scratch.error(), caught(candidates)));
  explore(candidates, std::move(untried), verifier, launches, device, kernels, *scratch, deadline,
          end);
  const Moment explored = now();

  std::vector<TrialResult> misbehaved = caught(candidates);
  const auto chosen = choose(candidates, verifier, launches, device, *scratch, left());
  log(LogLevel::kDebug,
      std::format("{}: {:.3f} s of preparation; {} of {} configs compiled in {:.3f} s, verified in "
                  "{:.3f} s; {} more tried in {:.3f} s; measured in {:.3f} s",
                  session.problem_text, Seconds(begun - start).count(), num_compiled,
                  session.space.size(), Seconds(compiled - begun).count(),
                  Seconds(verified - compiled).count(), candidates.size() - num_verified,
                  Seconds(explored - verified).count(), Seconds(now() - explored).count()));
  if (!chosen) return std::unexpected(TuneFailure(chosen.error(), std::move(misbehaved)));
  const Candidate* winner = *chosen;
  TuneResult result{.winner = winner->result.config,
                    .default_config = standard.result.config,
                    .winner_ns = winner->result.median_ns,
                    .default_ns = standard.result.median_ns};
  for (const Candidate& candidate : candidates) result.trials.push_back(candidate.result);
  for (const kernels::Config& config : crashed_configs) {
    result.trials.push_back({.config = config, .verdict = Verdict::kDidNotFinish});
  }
  statistics.tuned_problems.fetch_add(1, std::memory_order_relaxed);
  statistics.trials.fetch_add(static_cast<std::int64_t>(candidates.size()),
                              std::memory_order_relaxed);
  if (standard.result.samples < cache::kMinSamples) {
    return not_compared(session, limits, std::move(result.trials));
  }
  return result;
}

}  // namespace dorajit::autotune
