#include "cache/records/winner_choice.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "kernel_templates/config.h"

namespace dorajit::cache {
namespace {

using ConfigText = std::string;

constexpr double kMinGain = 0.01;
constexpr double kStandardErrors = 3.0;
// For normal noise: the standard deviation is 1.4826 MAD, and the standard error of the median is
// 1.2533 times that of the mean.
constexpr double kMadToStandardError = 1.4826 * 1.2533;

// Two runs with equal circumstances measured the same thing. The space is not included: it says
// what was tried, not how.
using Circumstances = std::tuple<std::string_view, std::string_view, std::string_view,
                                 std::string_view>;  // driver, policy, tuner, templates
using RunKey = std::tuple<Circumstances, std::string_view, std::int64_t, std::string_view,
                          ConfigText>;  // space, time, host, default config
// The most informative trial of each config.
using Run = std::map<ConfigText, const Trial*>;
// Configs that were rejected, with their templates.
using Refused = std::set<std::pair<std::string_view, ConfigText>>;

// The result of one run.
struct Outcome {
  Circumstances circumstances;
  std::int64_t time = 0;  // -1: in the future
  int samples = 0;        // number that the decision rests on
  const Trial* chosen = nullptr;
  const Trial* standard = nullptr;
};

Circumstances circumstances_of(const Environment& environment) {
  return {environment.driver, environment.policy, environment.tuner, environment.templates};
}

RunKey run_of(const Trial& trial) {
  return {circumstances_of(trial.environment), trial.environment.space, trial.created_unix_s,
          trial.host, to_text(trial.default_config)};
}

bool is_measured(const Trial& trial) {
  return trial.verdict == Verdict::kOk && std::isfinite(trial.median_ns) && trial.median_ns > 0 &&
         std::isfinite(trial.mad_ns) && trial.mad_ns >= 0;
}

// Never equal for two different trials.
auto order_of_evidence(const Trial& trial) {
  return std::tuple(trial.samples, -trial.median_ns, -trial.mad_ns, checksum(trial));
}

Refused refused_configs(std::span<const Trial> trials) {
  Refused refused;
  for (const Trial& trial : trials) {
    if (is_bad(trial.verdict)) {
      refused.emplace(trial.environment.templates, to_text(trial.config));
    }
  }
  return refused;
}

std::map<RunKey, Run> group_by_run(std::span<const Trial> trials) {
  std::map<RunKey, Run> runs;
  for (const Trial& trial : trials) {
    if (!is_measured(trial)) continue;
    const Trial*& best = runs[run_of(trial)].try_emplace(to_text(trial.config)).first->second;
    if (best == nullptr || order_of_evidence(*best) < order_of_evidence(trial)) best = &trial;
  }
  return runs;
}

// Whether the config beat the default of its run; `has_comparison` says whether a config of the run
// was in a final comparison.
bool has_won(const Trial& trial, const Trial& standard, bool has_comparison) {
  if (has_comparison)
    return trial.comparison &&
           is_faster(trial.comparison->log_ratio, trial.comparison->standard_error);
  return is_faster(trial.median_ns, trial.mad_ns, standard.median_ns, standard.mad_ns,
                   std::min(trial.samples, standard.samples));
}

// Lower is faster; compares configs of one run that beat its default.
double order_of_speed(const Trial& trial) {
  return trial.comparison ? trial.comparison->log_ratio : trial.median_ns;
}

std::optional<Outcome> decide(const Run& run, const Refused& refused, std::int64_t latest) {
  const Trial& any = *run.begin()->second;
  const auto is_refused = [&](const ConfigText& config) {
    return refused.contains({any.environment.templates, config});
  };
  const ConfigText default_text = to_text(any.default_config);
  const auto found = run.find(default_text);
  if (found == run.end() || is_refused(default_text)) return std::nullopt;
  const Trial* standard = found->second;
  if (standard->samples < kMinSamples) return std::nullopt;

  Outcome outcome{.circumstances = circumstances_of(any.environment),
                  .time = any.created_unix_s > latest ? -1 : any.created_unix_s,
                  .samples = standard->samples,
                  .chosen = standard,
                  .standard = standard};
  const bool has_comparison = std::ranges::any_of(
      run, [](const auto& entry) { return entry.second->comparison.has_value(); });
  for (const auto& [config, trial] : run) {
    if (is_refused(config) || trial == standard || !has_won(*trial, *standard, has_comparison))
      continue;
    if (outcome.chosen == standard || order_of_speed(*trial) < order_of_speed(*outcome.chosen)) {
      outcome.chosen = trial;
      outcome.samples = std::min(trial->samples, standard->samples);
    }
  }
  return outcome;
}

auto order_of_newness(const Outcome& outcome) {
  return std::tuple(outcome.time, outcome.circumstances);
}

auto order_of_evidence(const Outcome& outcome) {
  return std::tuple(outcome.samples, outcome.time, order_of_evidence(*outcome.standard),
                    order_of_evidence(*outcome.chosen));
}

Winner to_winner(const Outcome& outcome) {
  const Trial& chosen = *outcome.chosen;
  return {.problem = chosen.problem,
          .device = chosen.device,
          .environment = chosen.environment,
          .config = chosen.config,
          .default_config = outcome.standard->config,
          .median_ns = chosen.median_ns,
          .default_median_ns = outcome.standard->median_ns,
          .created_unix_s = chosen.created_unix_s};
}

std::optional<Outcome> decisive_outcome(std::span<const Trial> trials, std::int64_t latest) {
  const Refused refused = refused_configs(trials);
  std::vector<Outcome> outcomes;
  for (const auto& [key, run] : group_by_run(trials)) {
    if (auto outcome = decide(run, refused, latest)) outcomes.push_back(*outcome);
  }
  if (outcomes.empty()) return std::nullopt;
  const auto newest = std::ranges::max(outcomes, {}, order_of_newness);
  std::erase_if(outcomes, [&](const Outcome& outcome) {
    return outcome.circumstances != newest.circumstances;
  });
  return std::ranges::max(outcomes, {},
                          [](const Outcome& outcome) { return order_of_evidence(outcome); });
}

// Calls `visit` with the outcome of every pair that has one, sorted by device and problem.
template <class Visit>
void for_each_outcome(std::span<const Trial> trials, std::int64_t latest, Visit visit) {
  std::map<std::pair<std::string_view, std::string_view>, std::vector<Trial>> pairs;
  for (const Trial& trial : trials) pairs[{trial.device, trial.problem}].push_back(trial);
  for (const auto& [pair, its_trials] : pairs) {
    if (const auto outcome = decisive_outcome(its_trials, latest)) visit(*outcome);
  }
}

}  // namespace

bool is_faster(double log_ratio, double standard_error) {
  return log_ratio <= std::log1p(-kMinGain) && -log_ratio > kStandardErrors * standard_error;
}

double median_standard_error(double mad, int samples) {
  return kMadToStandardError * mad / std::sqrt(static_cast<double>(std::max(samples, 1)));
}

bool is_faster(double candidate_median, double candidate_mad, double default_median,
               double default_mad, int samples) {
  if (samples < kMinSamples) return false;
  const double gain = default_median - candidate_median;
  // Not std::hypot, for which a wheel would require glibc 2.35.
  const double mad = std::sqrt(candidate_mad * candidate_mad + default_mad * default_mad);
  const double error = median_standard_error(mad, samples);
  return gain > kMinGain * default_median && gain > kStandardErrors * error;
}

std::optional<Winner> choose_winner(std::span<const Trial> trials, std::int64_t latest) {
  return decisive_outcome(trials, latest).transform(to_winner);
}

std::optional<Winner> choose_winner_in(const Environment& here, std::span<const Trial> trials,
                                       std::int64_t latest) {
  std::vector<Trial> ours(trials.begin(), trials.end());
  std::erase_if(ours, [&](const Trial& trial) {
    return circumstances_of(trial.environment) != circumstances_of(here);
  });
  std::vector<Trial> of_space = ours;
  std::erase_if(of_space,
                [&](const Trial& trial) { return trial.environment.space != here.space; });
  const auto winner = choose_winner(of_space, latest);
  return winner ? winner : choose_winner(ours, latest);
}

std::vector<Winner> choose_winners(std::span<const Trial> trials, std::int64_t latest) {
  std::vector<Winner> winners;
  for_each_outcome(trials, latest,
                   [&](const Outcome& outcome) { winners.push_back(to_winner(outcome)); });
  return winners;
}

std::vector<Trial> deciding_trials(std::span<const Trial> trials, std::int64_t latest) {
  std::vector<Trial> deciding;
  for_each_outcome(trials, latest, [&](const Outcome& outcome) {
    deciding.push_back(*outcome.standard);
    if (outcome.chosen != outcome.standard) deciding.push_back(*outcome.chosen);
  });
  return deciding;
}

bool is_same(const std::optional<Winner>& first, const std::optional<Winner>& second) {
  if (!first || !second) return !first && !second;
  return checksum(*first) == checksum(*second);
}

}  // namespace dorajit::cache
