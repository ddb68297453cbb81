#include "apps/cli/report/findings.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "apps/cli/bench/traffic.h"
#include "apps/cli/views/trials_table.h"
#include "autotune/search/scratch_operands.h"
#include "cache/records/significance.h"
#include "kernel_templates/sizes.h"
#include "runtime/base/hash.h"

namespace dorajit::cli::report {
namespace {

using kernels::DeviceKind;

// On a CPU the limit depends on its cache, which is not recorded; problems up to this size are
// never cut.
constexpr std::int64_t kCertainCpuBytes = std::int64_t{32} << 20;

DeviceKind kind_of(std::string_view fingerprint) {
  return fingerprint.starts_with("cpu/") ? DeviceKind::kCpu : DeviceKind::kCuda;
}

// A problem on a device.
using Key = std::pair<std::string_view, std::string_view>;

struct SourcedWinner {
  const cache::Winner* winner = nullptr;
  const Source* source = nullptr;
};

std::optional<Roofline> roofline_of(const launch::Problem& problem, const cache::Winner& winner) {
  const DeviceKind kind = kind_of(winner.device);
  const bool is_cpu = kind == DeviceKind::kCpu;
  // A problem that exceeds the memory for tuning is measured on fewer rows.
  const std::int64_t most = is_cpu ? kCertainCpuBytes : autotune::kMaxScratchBytes;
  const autotune::ScratchShape shape = autotune::scratch_shape(problem, kind, most);
  const bool was_cut =
      shape.sizes != problem.largest_sizes() ||
      autotune::ScratchOperands::bytes_per_set(problem.variant, shape, kind) > most;
  if (is_cpu && was_cut) return std::nullopt;
  const std::int64_t bytes = traffic(problem.variant, shape.sizes);
  return Roofline{.bytes = bytes, .bytes_per_ns = static_cast<double>(bytes) / winner.median_ns};
}

// Standard error of a median, as a share of it.
double relative_error(const cache::Trial* trial) {
  if (trial == nullptr || !was_measured(*trial) || !std::isfinite(trial->mad_ns)) return 0;
  return cache::median_standard_error(trial->mad_ns, trial->samples) / trial->median_ns;
}

const cache::Trial* find(const std::vector<cache::Trial>& trials, const kernels::Config& config) {
  const auto found = std::ranges::find(trials, config, &cache::Trial::config);
  return found == trials.end() ? nullptr : &*found;
}

ProblemFindings findings_of(const SourcedWinner& sourced, std::vector<cache::Trial> trials,
                            std::int64_t now_unix_s) {
  const cache::Winner& winner = *sourced.winner;
  ProblemFindings found{.winner = winner,
                        .problem = launch::parse_problem(winner.problem),
                        .trials = std::move(trials),
                        .source = sourced.source->name,
                        .age_s = now_unix_s - winner.created_unix_s,
                        .roofline = std::nullopt};
  if (!found.keeps_default()) {
    found.speedup = winner.default_median_ns / winner.median_ns;
    const double own = relative_error(find(found.trials, winner.config));
    const double others = relative_error(find(found.trials, winner.default_config));
    found.speedup_error = found.speedup * std::sqrt(own * own + others * others);
  }
  if (!std::isfinite(found.speedup) || found.speedup <= 0) found.speedup = 1;
  if (found.problem) {
    found.is_for_these_kernels =
        winner.environment.templates ==
        hash_hex(kernels::source_identity(found.problem->variant, kind_of(winner.device)));
    found.roofline = roofline_of(*found.problem, winner);
  }
  return found;
}

// Problems of a variant side by side, the small ones first; unknown keys at the end.
auto place_of(const ProblemFindings& found) {
  if (!found.problem) {
    return std::tuple(true, found.winner.problem, std::vector<std::int64_t>{});
  }
  std::vector<std::int64_t> sizes;  // those that are exact first
  for (const kernels::Keying keying : {kernels::Keying::kExact, kernels::Keying::kBucketed}) {
    const auto& dimensions = found.problem->variant.operation->dimensions;
    for (std::size_t i = 0; i < dimensions.size(); ++i) {
      if (dimensions[i].keying == keying) sizes.push_back(found.problem->key[i]);
    }
  }
  return std::tuple(
      false, to_text(found.problem->variant) + "/" + std::to_string(found.problem->vector_width),
      sizes);
}

}  // namespace

double DeviceFindings::mean_speedup() const {
  if (problems.empty()) return 1;
  double logarithms = 0;
  for (const ProblemFindings& one : problems) logarithms += std::log(one.speedup);
  return std::exp(logarithms / static_cast<double>(problems.size()));
}

std::int64_t DeviceFindings::defaults_kept() const {
  return std::ranges::count_if(problems, &ProblemFindings::keeps_default);
}

std::vector<DeviceFindings> make_findings(std::span<const Source> sources,
                                          std::int64_t now_unix_s) {
  std::map<Key, SourcedWinner> winners;
  std::map<std::string_view, DeviceFindings> devices;
  const auto device = [&](const std::string& fingerprint) -> DeviceFindings& {
    DeviceFindings& one = devices[fingerprint];
    if (one.fingerprint.empty()) {
      one.fingerprint = fingerprint;
      one.memory = known_bandwidth(fingerprint);
    }
    return one;
  };
  for (const Source& source : sources) {
    for (const cache::Winner& winner : source.winners) {
      if (!(winner.median_ns > 0) || !std::isfinite(winner.median_ns)) continue;
      SourcedWinner& known = winners[{winner.device, winner.problem}];
      if (known.winner == nullptr || known.winner->created_unix_s < winner.created_unix_s) {
        known = {.winner = &winner, .source = &source};
      }
    }
  }
  std::map<Key, std::vector<cache::Trial>> runs;
  for (const Source& source : sources) {
    for (const cache::Trial& trial : source.trials) {
      DeviceFindings& one = device(trial.device);
      ++one.trials;
      if (trial.verdict != cache::Verdict::kOk) ++one.bad_trials;
      const auto known = winners.find(Key{trial.device, trial.problem});
      if (known == winners.end() || known->second.source != &source) continue;
      const cache::Winner& winner = *known->second.winner;
      if (trial.created_unix_s == winner.created_unix_s &&
          trial.environment == winner.environment) {
        runs[known->first].push_back(trial);
      }
    }
  }
  for (const auto& [key, sourced] : winners) {
    device(sourced.winner->device)
        .problems.push_back(findings_of(sourced, std::move(runs[key]), now_unix_s));
  }
  std::vector<DeviceFindings> found;
  for (auto& [fingerprint, one] : devices) {
    std::ranges::stable_sort(one.problems, {}, place_of);
    found.push_back(std::move(one));
  }
  return found;
}

}  // namespace dorajit::cli::report
