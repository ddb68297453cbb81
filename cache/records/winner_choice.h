// Whether measured times differ significantly, and how winners are derived from trials.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cache/records/tuning_records.h"

namespace dorajit::cache {

// Fewer samples are not enough to estimate their spread, so nothing is decided on them.
inline constexpr int kMinSamples = 5;

// Whether a candidate is faster than the default by at least 1% and by more than three standard
// errors, from the mean of log(candidate time / default time) over common rounds and the standard
// error of that mean. The rounds must not be those by which the candidate was selected.
bool is_faster(double log_ratio, double standard_error);

// The standard error of a median from the samples' median absolute deviation, for normal noise.
double median_standard_error(double mad, int samples);

// The same test if only medians are known: whether a candidate is faster than the default by at
// least 1% and by more than three standard errors of the difference of the medians. False for fewer
// than five samples.
bool is_faster(double candidate_median, double candidate_mad, double default_median,
               double default_mad, int samples);

// The winner of one problem on one device; `trials` must be of that pair only. Nothing if no run
// has a default config with enough samples.
//
// A pure function of the set of trials and of `latest`: neither order nor duplicates matter.
// Databases can therefore be merged by the union of their trials, in any order and any number of
// times.
//
// 1. Trials that share environment, default config, time and host form one run. Times are only
// compared within a run: a config wins it if is_faster() than the default, else the default wins.
// If a run has a final comparison, that decides it.
//
// 2. A config that gave wrong bits or failed to launch in any run wins no run of the same
// templates; if it is the default, such a run decides nothing.
//
// 3. Among runs that differ only in space, time and host, the one whose outcome rests on the most
// samples decides; then the newest.
//
// 4. Runs that differ in driver, policy, tuner or templates measured something else: only runs with
// the circumstances of the newest run count.
//
// Runs dated after `latest`, by a wrong clock, count as older than all others: as the newest they
// would decide until that date. A correct clock never gives such a date.
std::optional<Winner> choose_winner(std::span<const Trial> trials,
                                    std::int64_t latest = latest_plausible_time());

// The winner of the trials that were measured in `here`, or else of those in an environment that
// differs from it only in space.
std::optional<Winner> choose_winner_in(const Environment& here, std::span<const Trial> trials,
                                       std::int64_t latest = latest_plausible_time());

// The trials that choose_winners() of all `trials` depends on: for each pair, the winner's and the
// default's of the deciding run. choose_winners() of these alone gives the same winners.
std::vector<Trial> deciding_trials(std::span<const Trial> trials,
                                   std::int64_t latest = latest_plausible_time());

// The winner of every pair among the trials, sorted by device and problem.
std::vector<Winner> choose_winners(std::span<const Trial> trials,
                                   std::int64_t latest = latest_plausible_time());

// Whether two winners of a problem, or their absence, are equal in every field.
bool is_same(const std::optional<Winner>& first, const std::optional<Winner>& second);

}  // namespace dorajit::cache
