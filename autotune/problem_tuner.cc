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
#include "autotune/robust_statistics.h"
#include "autotune/scratch_operands.h"
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
constexpr int kScreeningRounds = 4;
constexpr int kFinalRounds = 24;
constexpr std::size_t kFinalists = 4;
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
      candidate.kernel = *std::move(kernel);
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
  std::atomic<std::size_t> next{0};
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
    const auto right = verifier.check(*candidate.kernel);
    if (right && *right) continue;
    candidate.result.verdict = right ? Verdict::kWrongBits : Verdict::kFailedToLaunch;
    candidate.kernel.reset();
    log(LogLevel::kWarning,
        std::format("config {} of {} is quarantined: {}", to_text(candidate.result.config),
                    to_text(problem),
                    right ? "its output differs from the reference" : right.error().message));
  }
}

// Measures those candidates that still have a kernel; the results go into them.
void measure(std::vector<Candidate*> candidates, const ScratchOperands& scratch,
             device::Device& device, MeasurementPlan plan) {
  std::erase_if(candidates, [](const Candidate* candidate) { return !candidate->kernel; });
  std::vector<Work> work;
  for (const Candidate* candidate : candidates) {
    work.emplace_back([&, candidate](device::Stream stream, std::int64_t set) {
      return device.launch(*candidate->kernel->kernel, candidate->kernel->config,
                           scratch.arguments(set), stream);
    });
  }
  plan.sets = scratch.sets();
  plan.settling_launches = launches_to_settle(device.info(), scratch.set_bytes());
  const auto measured = measure_interleaved(device, work, plan);
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    TrialResult& result = candidates[i]->result;
    if (!measured[i].status) {
      result.verdict = Verdict::kFailedToLaunch;
      candidates[i]->kernel.reset();
      continue;
    }
    result.median_ns = measured[i].median_ns;
    result.mad_ns = measured[i].mad_ns;
    result.samples = measured[i].samples;
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

// The default first, then the fastest: what the second stage measures.
std::vector<Candidate*> choose_finalists(std::vector<Candidate>& candidates) {
  std::vector<Candidate*> ranked;
  for (Candidate& candidate : candidates) {
    if (candidate.kernel && &candidate != &candidates.front()) ranked.push_back(&candidate);
  }
  std::ranges::sort(ranked, {}, [](const Candidate* c) { return c->result.median_ns; });
  ranked.resize(std::min(ranked.size(), kFinalists));
  ranked.insert(ranked.begin(), &candidates.front());
  return ranked;
}

std::unexpected<Error> default_is_broken(const launch::Problem& problem, const Candidate& candidate,
                                         const Result<bool>& checked) {
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
  if (const auto checked = verifier.check(*standard.kernel); !checked || !*checked) {
    return default_is_broken(problem, standard, checked);
  }
  make_kernels(candidates, problem, device, kernels, deadline, progress);
  verify(candidates, verifier, problem);

  DORAJIT_ASSIGN(const ScratchOperands scratch, make_scratch(problem, device, limits));
  const std::chrono::duration<double> spent = Clock::now() - start;
  const double left =
      std::max(limits.seconds * kLeastMeasuringShare, limits.seconds - spent.count());
  std::vector<Candidate*> all;
  for (Candidate& candidate : candidates) all.push_back(&candidate);
  measure(all, scratch, device, {.rounds = kScreeningRounds, .seconds = left / 2});
  const std::vector<Candidate*> finalists = choose_finalists(candidates);
  // However slow the launches: without these few samples nothing could be said.
  measure(finalists, scratch, device,
          {.rounds = kFinalRounds, .least_rounds = kLeastSamples, .seconds = left / 2});
  verify(candidates, verifier, problem);
  if (!standard.kernel) {
    return fail(
        StatusCode::kDriverError,
        std::format("the default config of {} failed while it was measured", to_text(problem)));
  }

  const Candidate* winner = &standard;
  for (const Candidate* finalist : finalists) {
    const TrialResult& challenger = finalist->result;
    if (finalist != &standard && finalist->kernel &&
        challenger.median_ns < winner->result.median_ns &&
        is_faster(challenger.median_ns, challenger.mad_ns, standard.result.median_ns,
                  standard.result.mad_ns, std::min(challenger.samples, standard.result.samples))) {
      winner = finalist;
    }
  }
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
