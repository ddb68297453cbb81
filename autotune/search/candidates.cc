#include "autotune/search/candidates.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <format>
#include <new>
#include <string>
#include <thread>

#include "kernel_templates/config.h"
#include "kernel_templates/template.h"
#include "runtime/base/log.h"

namespace dorajit::autotune {
namespace {

using cache::Verdict;

constexpr int kMaxCompilers = 16;

// The same on all GPUs from compute capability 5.0 on.
constexpr int kRegistersPerBlock = 64 * 1024;
constexpr int kRegistersAtOnce = 256;  // allocation unit of a warp
constexpr int kStaticSharedBytes = 48 * 1024;

int registers_of_block(int registers_per_thread, int warps) {
  const int per_warp = registers_per_thread * kernels::kThreadsPerWarp;
  return warps * ((per_warp + kRegistersAtOnce - 1) / kRegistersAtOnce * kRegistersAtOnce);
}

// Of a program that computes the problem.
int warps_of(const launch::Problem& problem, const kernels::Config& config, int processors) {
  kernels::LaunchArguments arguments;
  arguments.set_sizes(problem.largest_sizes());
  const kernels::StageShape run =
      kernels::launch_shape(problem.variant, config, arguments, processors).run;
  const int threads = run.threads * run.threads_y * run.threads_z;
  return (threads + kernels::kThreadsPerWarp - 1) / kernels::kThreadsPerWarp;
}

void make_kernel(Candidate& candidate, const TuningSession& session, device::Device& device,
                 launch::KernelCache& kernels, Moment end) {
  const launch::Problem& problem = session.problem;
  std::string reason = "it did not compile";
  bool is_crash = false;
  try {
    auto kernel = kernels.get(device, problem.variant, candidate.result.config,
                              std::chrono::steady_clock::now() + (end - session.now()));
    if (kernel && !kernel->is_builtin) {
      const auto verdict = verdict_by_resources(
          kernel->resources,
          warps_of(problem, candidate.result.config, device.info().traits.processors),
          device.info().traits.kind);
      if (!verdict) {
        candidate.kernel = *std::move(kernel);
        return;
      }
      candidate.result.verdict = *verdict;
      return;
    }
    if (!kernel) {
      reason = kernel.error().message;
      is_crash = kernel.error().code == StatusCode::kInternal;
    }
  } catch (const std::bad_alloc&) {
    reason = "out of memory";
  }
  candidate.result.verdict = is_crash ? Verdict::kDidNotFinish : Verdict::kFailedToCompile;
  log(LogLevel::kInfo, std::format("config {} of {} is skipped: {}",
                                   to_text(candidate.result.config), to_text(problem), reason));
}

}  // namespace

std::optional<cache::Verdict> verdict_by_resources(const ResourceUsage& used, int warps,
                                                   kernels::DeviceKind kind) {
  if (used.spill_store_bytes > 0 || used.spill_load_bytes > 0) return cache::Verdict::kSpills;
  if (kind == kernels::DeviceKind::kCuda &&
      (registers_of_block(used.registers, warps) > kRegistersPerBlock ||
       used.shared_bytes > kStaticSharedBytes)) {
    return cache::Verdict::kFailedToLaunch;
  }
  return std::nullopt;
}

std::vector<kernels::Config> choose_configs(const std::vector<kernels::Config>& space,
                                            kernels::SpaceKind kind,
                                            std::span<const kernels::Config> left_out,
                                            int max_configs) {
  std::vector<kernels::Config> eligible;
  for (const kernels::Config& config : space) {
    if (eligible.empty() || std::ranges::find(left_out, config) == left_out.end()) {
      eligible.push_back(config);
    }
  }
  const auto count = static_cast<std::size_t>(max_configs);
  if (max_configs <= 0 || count >= eligible.size()) return eligible;
  std::vector<kernels::Config> chosen;
  for (std::size_t i = 0; i < count; ++i) {
    chosen.push_back(eligible[kind == kernels::SpaceKind::kSlim ? i : i * eligible.size() / count]);
  }
  return chosen;
}

std::vector<kernels::Config> remove_from(std::vector<Candidate>& candidates, std::size_t first) {
  std::vector<kernels::Config> removed;
  for (std::size_t i = first; i < candidates.size(); ++i) {
    removed.push_back(candidates[i].result.config);
  }
  candidates.resize(candidates.size() - removed.size());
  return removed;
}

std::vector<kernels::Config> make_kernels(std::vector<Candidate>& candidates, std::size_t first,
                                          const TuningSession& session, device::Device& device,
                                          launch::KernelCache& kernels, Moment deadline,
                                          Moment end) {
  // A user's kernel may take any time to compile.
  if (!session.problem.variant.operation->description.empty()) deadline = std::min(deadline, end);
  std::atomic<std::size_t> next{first};
  auto work = [&] {
    // The next compilation probably takes as long as the last one, which waited for those of other
    // threads where the compiler runs a part of its work in one thread at a time.
    Moment::duration last{};
    for (Moment start = session.now(); start + last < deadline; start += last) {
      const std::size_t i = next++;
      if (i >= candidates.size()) return;
      make_kernel(candidates[i], session, device, kernels, end);
      last = session.now() - start;
    }
  };
  const auto helpers =
      std::min<std::size_t>({candidates.size() - first, static_cast<std::size_t>(kMaxCompilers),
                             std::max<std::size_t>(1, std::thread::hardware_concurrency())});
  std::vector<std::thread> threads;
  threads.reserve(helpers);
  try {
    for (std::size_t i = 1; i < helpers; ++i) threads.emplace_back(work);
  } catch (const std::exception&) {
    log(LogLevel::kDebug, "cannot start all threads; compiling with fewer");
  }
  work();
  for (std::thread& thread : threads) thread.join();
  return remove_from(candidates, next);
}

void drop_misfits(std::vector<Candidate>& candidates, const launch::Problem& problem,
                  const device::Device& device, const ScratchShape& shape) {
  const kernels::Template& used = kernels::template_of(problem.variant);
  if (!used.fits_by_call) return;
  const auto why_not = used.why_config_does_not_fit;
  const auto is_misfit = [&](const Candidate& candidate) {
    return !why_not(problem.variant, device.info().traits, shape.sizes, candidate.result.config)
                .empty();
  };
  candidates.erase(std::remove_if(candidates.begin() + 1, candidates.end(), is_misfit),
                   candidates.end());
}

Status check_default_fits(const Candidate& standard, const launch::Problem& problem,
                          const device::Device& device, const ScratchShape& shape) {
  const kernels::Template& used = kernels::template_of(problem.variant);
  if (!used.fits_by_call) return {};
  const auto why_not = used.why_config_does_not_fit;
  const kernels::SpaceTraits& traits = device.info().traits;
  for (const kernels::Sizes& sizes : {problem.largest_sizes(), shape.sizes}) {
    const std::string why = why_not(problem.variant, traits, sizes, standard.result.config);
    if (why.empty()) continue;
    return fail(StatusCode::kUnsupported,
                std::format("{} is not tuned: the default config {} does not fit it: {}",
                            to_text(problem), to_text(standard.result.config), why));
  }
  return {};
}

}  // namespace dorajit::autotune
