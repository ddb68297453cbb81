// Trials of a problem, and how lock files differ, as text and JSON.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "apps/cli/terminal/output.h"
#include "cache/database/tuning_store.h"
#include "cache/records/pins.h"

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

// Where lock entries come from: a file, or this machine.
struct PinSide {
  std::string name;
  std::vector<cache::Pin> entries;
};

// One problem that two sides run differently.
struct PinMismatch {
  std::string device;
  std::string problem;
  std::string second;        // name of the side that was compared with the first
  std::string missing_in{};  // name of the side that does not have it, if one does not
  std::vector<cache::PinDifference> differences{};
};

// The differences of `second` from `first`, by device and problem.
std::vector<PinMismatch> compare_pins(const PinSide& first, const PinSide& second);

std::string mismatches_text(const std::string& first, const std::vector<PinMismatch>& mismatches);
Json to_json(const PinMismatch& mismatch);
Json to_json(const cache::Pin& entry);

}  // namespace dorajit::cli
