#include "autotune/problem_tuner.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <format>
#include <new>
#include <optional>
#include <string>
#include <thread>

#include "autotune/measurement.h"
#include "autotune/resource_limits.h"
#include "autotune/robust_statistics.h"
#include "autotune/scratch_operands.h"
#include "autotune/tournament.h"
#include "autotune/verification.h"
#include "kernel_templates/config_text.h"
#include "runtime/base/log.h"

namespace dorajit::autotune {
namespace {

using cache::Verdict;
using launch::ReadyKernel;

constexpr std::int64_t kMostScratchBytes = 2LL << 30;
// A CPU is a hundred times slower than a GPU: a few times its cache is cold, and soon done.
constexpr std::int64_t kCpuCachesOfScratch = 8;
constexpr double kLeastMeasuringShare = 0.25;  // of the budget, however long compiling took
constexpr int kMostCompilers = 8;

struct Candidate {
  TrialResult result;
  std::optional<ReadyKernel> kernel;
};

using Clock = std::chrono::steady_clock;

void make_kernel(Candidate& candidate, const launch::Problem& problem, device::Device& device,
                 launch::KernelCache& kernels) {
  std::string reason = "it did not compile";
  try {
    auto kernel = kernels.get(device, problem.variant, candidate.result.config);
    if (kernel && !kernel->is_builtin) {
      const auto verdict = verdict_by_resources(kernel->resources, candidate.result.config,
                                                device.info().traits.kind);
      if (!verdict) {
        candidate.kernel = *std::move(kernel);
        return;
      }
      candidate.result.verdict = *verdict;
      return;
    }
    if (!kernel) reason = kernel.error().message;
  } catch (const std::bad_alloc&) {
    reason = "there is no memory left";
  }
  candidate.result.verdict = Verdict::kFailedToCompile;
  log(LogLevel::kInfo, std::format("config {} of {} is left out: {}",
                                   to_text(candidate.result.config), to_text(problem), reason));
}

// Compiles and loads on several threads. What fails is marked and left out; what was not begun by
// the deadline is dropped.
void make_kernels(std::vector<Candidate>& candidates, const launch::Problem& problem,
                  device::Device& device, launch::KernelCache& kernels, Clock::time_point deadline,
                  const TuneProgress& progress) {
  std::atomic<std::size_t> next{1};  // the default is there already, and is never pruned
  auto work = [&] {
    while (Clock::now() < deadline) {
      const std::size_t i = next++;
      if (i >= candidates.size()) return;
      make_kernel(candidates[i], problem, device, kernels);
    }
  };
  const auto helpers =
      std::min<std::size_t>({candidates.size(), static_cast<std::size_t>(kMostCompilers),
                             std::max<std::size_t>(1, std::thread::hardware_concurrency())});
  std::vector<std::thread> threads;
  threads.reserve(helpers);
  try {
    for (std::size_t i = 1; i < helpers; ++i) threads.emplace_back(work);
  } catch (const std::exception&) {
    log(LogLevel::kDebug, "no more threads; fewer compile");
  }
  work();
  for (std::thread& thread : threads) thread.join();
  const std::size_t begun = std::clamp<std::size_t>(next, 1, candidates.size());
  if (progress) progress(static_cast<int>(begun), static_cast<int>(candidates.size()));
  candidates.erase(candidates.begin() + static_cast<std::ptrdiff_t>(begun), candidates.end());
}

// Drops candidates that do not produce the right bits.
void verify(std::vector<Candidate>& candidates, Verifier& verifier,
            const launch::Problem& problem) {
  for (Candidate& candidate : candidates) {
    if (!candidate.kernel) continue;
    const auto checked = verifier.check(*candidate.kernel);
    const Verdict verdict = checked.value_or(Verdict::kFailedToLaunch);
    if (verdict == Verdict::kOk) continue;
    candidate.result.verdict = verdict;
    candidate.kernel.reset();
    log(LogLevel::kWarning,
        std::format("config {} of {} is quarantined: {}", to_text(candidate.result.config),
                    to_text(problem), checked ? name(verdict) : checked.error().message));
  }
}

using Seconds = std::chrono::duration<double>;

// Plays the tournament within `seconds`, of which each stage gets its part and hands on what it
// does not use.
void play(Tournament& tournament, RoundSampler& sampler, double seconds) {
  const auto deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(Seconds(seconds));
  while (const int stages = tournament.stages_left()) {
    const auto stage_end = Clock::now() + (deadline - Clock::now()) / stages;
    while (!tournament.stage_is_decided() &&
           (Clock::now() < stage_end || tournament.stage_owes_rounds())) {
      tournament.add_round(sampler.sample(tournament.running()));
    }
    tournament.end_stage();
  }
}

// What there is to time, for those candidates that have a kernel, the default first.
std::vector<Candidate*> contestants(std::vector<Candidate>& candidates) {
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

// Enters what was measured, and drops what failed while it was.
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
}

// As many rows of the bucket as the memory allows, and as many sets as defeat the cache.
Result<ScratchOperands> make_scratch(const launch::Problem& problem, device::Device& device,
                                     const TuneLimits& limits) {
  std::int64_t budget = limits.scratch_bytes;
  if (budget == 0) {
    DORAJIT_ASSIGN(const std::int64_t free, device.free_memory());
    budget = std::min(kMostScratchBytes, free / 4);
    if (device.info().traits.kind == kernels::DeviceKind::kCpu) {
      budget = std::min(budget, kCpuCachesOfScratch * device.info().cache_bytes);
    }
  }
  ScratchShape shape{.rows = problem.bucket_rows(),
                     .cols = problem.num_cols,
                     .vector_width = problem.vector_width};
  const auto set_bytes = [&] {
    return ScratchOperands::bytes_per_set(problem.variant, shape, device.info().traits.kind);
  };
  while (shape.rows > 1 && set_bytes() > budget) shape.rows /= 2;
  shape.sets = sets_for_cold_cache(device.info(), set_bytes(), budget);
  return ScratchOperands::make(device, problem.variant, shape);
}

std::unexpected<Error> default_is_broken(const launch::Problem& problem, const Candidate& candidate,
                                         const Result<Verdict>& checked) {
  if (!checked) return std::unexpected(checked.error());
  return fail(StatusCode::kInternal,
              std::format("the default config {} of {} does not produce the reference's bits on "
                          "this device; please report this",
                          to_text(candidate.result.config), to_text(problem)));
}

}  // namespace

Result<TuneResult> tune_problem(const launch::Problem& problem, device::Device& device,
                                launch::KernelCache& kernels, const TuneLimits& limits,
                                Statistics& statistics, const TuneProgress& progress) {
  const auto start = Clock::now();
  // The slim space is small enough to be compiled whole; the comprehensive one as far as time goes.
  const auto deadline = limits.space == kernels::SpaceKind::kSlim
                            ? Clock::time_point::max()
                            : start + std::chrono::duration_cast<Clock::duration>(
                                          std::chrono::duration<double>(limits.seconds));
  std::vector<Candidate> candidates;
  for (const kernels::Config& config : kernels::config_space(problem.variant, device.info().traits,
                                                             problem.vector_width, limits.space)) {
    candidates.push_back({.result = {.config = config}, .kernel = {}});
  }
  Candidate& standard = candidates.front();

  DORAJIT_ASSIGN(ReadyKernel ready, kernels.get(device, problem.variant, standard.result.config));
  if (ready.is_builtin) {
    return TuneResult{.winner = ready.config, .default_config = standard.result.config};
  }
  standard.kernel = std::move(ready);
  DORAJIT_ASSIGN(Verifier verifier, Verifier::make(problem, device));
  if (const auto checked = verifier.check(*standard.kernel); !checked || *checked != Verdict::kOk) {
    return default_is_broken(problem, standard, checked);
  }
  make_kernels(candidates, problem, device, kernels, deadline, progress);
  verify(candidates, verifier, problem);

  DORAJIT_ASSIGN(const ScratchOperands scratch, make_scratch(problem, device, limits));
  const std::chrono::duration<double> spent = Clock::now() - start;
  const double left =
      std::max(limits.seconds * kLeastMeasuringShare, limits.seconds - spent.count());
  const std::vector<Candidate*> competing = contestants(candidates);
  const std::vector<Work> work = work_of(competing, scratch, device);
  RoundSampler sampler(
      device, work,
      {.sets = scratch.sets(),
       .settling_launches = launches_to_settle(device.info(), scratch.set_bytes())});
  Tournament tournament(competing.size());
  play(tournament, sampler, left);
  note_measurements(competing, tournament, sampler);
  verify(candidates, verifier, problem);
  // What computed wrong bits only after a while has beaten nobody.
  while (standard.kernel && tournament.winner() != 0 && !competing[tournament.winner()]->kernel) {
    tournament.disqualify_challenger();
    play(tournament, sampler, left * kLeastMeasuringShare);
    note_measurements(competing, tournament, sampler);
    verify(candidates, verifier, problem);
  }
  if (!standard.kernel) {
    return fail(
        StatusCode::kDriverError,
        std::format("the default config of {} failed while it was measured", to_text(problem)));
  }
  const Candidate* winner = competing[tournament.winner()];
  TuneResult result{.winner = winner->result.config,
                    .default_config = standard.result.config,
                    .winner_ns = winner->result.median_ns,
                    .default_ns = standard.result.median_ns,
                    .is_conclusive = standard.result.samples >= kLeastSamples};
  for (const Candidate& candidate : candidates) result.trials.push_back(candidate.result);
  statistics.tuned_problems.fetch_add(1, std::memory_order_relaxed);
  statistics.trials.fetch_add(static_cast<std::int64_t>(candidates.size()),
                              std::memory_order_relaxed);
  return result;
}

}  // namespace dorajit::autotune
