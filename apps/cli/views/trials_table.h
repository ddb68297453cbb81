// Trials of a problem, as text and JSON.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "apps/cli/terminal/output.h"
#include "cache/database/tuning_store.h"

namespace dorajit::cli {

// Whether the trial has a time.
bool was_measured(const cache::Trial& trial);

// The trials that were recorded together with the winner.
std::vector<cache::Trial> trials_of(const cache::Winner& winner, cache::TuningStore& store);

// One line per trial, the fastest first; times are compared with the winner's default config.
std::string trials_text(std::span<const cache::Trial> trials, const cache::Winner& winner);
Json trials_json(std::span<const cache::Trial> trials, const cache::Winner& winner);

// Seconds since the winner was measured.
std::int64_t age_of(const cache::Winner& winner);

// The winner itself.
Json to_json(const cache::Winner& winner);

}  // namespace dorajit::cli
