// Which config a problem should run, as it follows from everything that was measured.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cache/records/trial_validity.h"
#include "cache/records/tuning_records.h"

namespace dorajit::cache {

// The winner of one problem on one device; `trials` are of that pair only. Nothing when no run
// has a default config that was measured well enough.
//
// A pure function of the set of trials, and of `latest`: neither their order nor repetitions
// matter. So databases merge by the union of their trials, in any order and any number of times.
//
// 1. Trials that share environment, default config, time and host are one run. Times are compared
//    inside a run only: a config wins it by is_faster() than the default, else the default wins.
//    Where a run records a duel, that decides it.
// 2. A config that gave wrong bits or failed to launch in any run wins no run of the same
//    templates; if it is the default, such a run decides nothing.
// 3. Of several runs that differ in nothing but space, time and host, the one decides whose outcome
//    rests on the most samples; then the newest.
// 4. Runs that differ in driver, policy, tuner or templates measured another thing: only those
//    that are like the newest run count.
//
// Runs that are dated after `latest`, by a clock that was wrong, count as older than all others: as
// the newest they would decide until then. A run is dated so by no honest clock.
std::optional<Winner> choose_winner(std::span<const Trial> trials,
                                    std::int64_t latest = latest_plausible_time());

// The trials that choose_winners() of all `trials` rests on: of each pair the winner's and the
// default's of the run that decides. choose_winners() of them alone gives the same winners.
std::vector<Trial> deciding_trials(std::span<const Trial> trials,
                                   std::int64_t latest = latest_plausible_time());

// The winner of every pair among the trials, ordered by device and problem.
std::vector<Winner> choose_winners(std::span<const Trial> trials,
                                   std::int64_t latest = latest_plausible_time());

}  // namespace dorajit::cache
