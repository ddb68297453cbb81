#include "apps/cli/report/findings.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <tuple>
#include <utility>

#include "apps/cli/bench/comparison.h"
#include "apps/cli/views/descriptions.h"
#include "autotune/search/scratch_operands.h"
#include "cache/records/winner_choice.h"
#include "kernel_templates/sizes.h"
#include "runtime/base/hash.h"

namespace dorajit::cli::report {
namespace {

using kernels::DeviceKind;

// On a CPU the limit depends on its cache, which is not recorded; problems up to this size are
// never cut.
constexpr std::int64_t kCertainCpuBytes = std::int64_t{32} << 20;

// Peak rates from the makers' data sheets. A name that contains another one comes before it.
constexpr KnownBandwidth kKnown[] = {
    {.model = "GB200", .bytes_per_ns = 8000},
    {.model = "B200", .bytes_per_ns = 8000},
    {.model = "GH200 144G", .bytes_per_ns = 4900},
    {.model = "GH200", .bytes_per_ns = 4000},
    {.model = "H200", .bytes_per_ns = 4800},
    {.model = "H100 PCIe", .bytes_per_ns = 2000},
    {.model = "H100 NVL", .bytes_per_ns = 3900},
    {.model = "H100", .bytes_per_ns = 3350},
    {.model = "A100-SXM4-80GB", .bytes_per_ns = 2039},
    {.model = "A100 80GB PCIe", .bytes_per_ns = 1935},
    {.model = "A100", .bytes_per_ns = 1555},
    {.model = "L40S", .bytes_per_ns = 864},
    {.model = "L40", .bytes_per_ns = 864},
    {.model = "L4", .bytes_per_ns = 300},
    {.model = "A40", .bytes_per_ns = 696},
    {.model = "A10G", .bytes_per_ns = 600},
    {.model = "A10", .bytes_per_ns = 600},
    {.model = "RTX 5090", .bytes_per_ns = 1792},
    {.model = "RTX 4090", .bytes_per_ns = 1008},
    {.model = "RTX 3090", .bytes_per_ns = 936},
    {.model = "V100", .bytes_per_ns = 900},
    {.model = "T4", .bytes_per_ns = 320},
};

// Whether the text has the model as words of its own: no A10 in A100.
bool names(std::string_view text, std::string_view model) {
  const auto is_part_of_word = [&](std::size_t at) {
    if (at >= text.size()) return false;
    const char letter = text[at];
    return (letter >= '0' && letter <= '9') || (letter >= 'A' && letter <= 'Z') ||
           (letter >= 'a' && letter <= 'z');
  };
  for (std::size_t at = text.find(model); at != text.npos; at = text.find(model, at + 1)) {
    if (!is_part_of_word(at + model.size()) && (at == 0 || !is_part_of_word(at - 1))) return true;
  }
  return false;
}

// Of the first model that the device's fingerprint names.
std::optional<KnownBandwidth> known_bandwidth(std::string_view fingerprint) {
  // A slice of a GPU has a slice of its bandwidth.
  if (!fingerprint.starts_with("cuda/") || fingerprint.contains("MIG")) return std::nullopt;
  const auto* found = std::ranges::find_if(
      kKnown, [&](const KnownBandwidth& one) { return names(fingerprint, one.model); });
  if (found == std::end(kKnown)) return std::nullopt;
  return *found;
}

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

ProblemFindings findings_of(const cache::Winner& winner, std::vector<cache::Trial> trials,
                            std::string source) {
  ProblemFindings found{.winner = winner,
                        .problem = launch::parse_problem(winner.problem),
                        .trials = std::move(trials),
                        .source = std::move(source),
                        .age_s = age_of(winner),
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

double DeviceFindings::mean_speedup() const {
  if (problems.empty()) return 1;
  double logarithms = 0;
  for (const ProblemFindings& one : problems) logarithms += std::log(one.speedup);
  return std::exp(logarithms / static_cast<double>(problems.size()));
}

std::int64_t DeviceFindings::defaults_kept() const {
  return std::ranges::count_if(problems, &ProblemFindings::keeps_default);
}

std::vector<DeviceFindings> make_findings(std::span<const Source> sources) {
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
        .problems.push_back(
            findings_of(*sourced.winner, std::move(runs[key]), sourced.source->name));
  }
  std::vector<DeviceFindings> found;
  for (auto& [fingerprint, one] : devices) {
    std::ranges::stable_sort(one.problems, {}, place_of);
    found.push_back(std::move(one));
  }
  return found;
}

Json to_json(const ProblemFindings& found) {
  Json row = cli::to_json(found.winner);
  row["age_s"] = found.age_s;
  row["speedup_standard_error"] = found.speedup_error;
  row["source"] = found.source;
  row["for_these_kernels"] = found.is_for_these_kernels;
  row["sizes"] = nullptr;
  if (found.problem) {
    const kernels::Sizes sizes = found.problem->largest_sizes();
    const auto& dimensions = found.problem->variant.operation->dimensions;
    for (std::size_t i = 0; i < dimensions.size(); ++i) {
      if (dimensions[i].keying < kernels::Keying::kDerived) {
        row["sizes"][dimensions[i].name] = sizes[i];
      }
    }
  }
  row["bytes"] = nullptr;
  row["gb_per_s"] = nullptr;
  if (found.roofline) {
    row["bytes"] = found.roofline->bytes;
    row["gb_per_s"] = found.roofline->bytes_per_ns;
  }
  row["trials"] = trials_json(found.trials, found.winner);
  return row;
}

Json to_json(const DeviceFindings& device) {
  Json row = {{"fingerprint", device.fingerprint},
              {"peak_gb_per_s", nullptr},
              {"peak_of", nullptr},
              {"trials", device.trials},
              {"trials_that_failed", device.bad_trials},
              {"mean_speedup", device.mean_speedup()},
              {"defaults_kept", device.defaults_kept()},
              {"problems", Json::array()}};
  if (device.memory) {
    row["peak_gb_per_s"] = device.memory->bytes_per_ns;
    row["peak_of"] = device.memory->model;
  }
  for (const ProblemFindings& found : device.problems) row["problems"].push_back(to_json(found));
  return row;
}

}  // namespace dorajit::cli::report
