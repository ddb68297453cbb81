// Devices, counts, stores, trials, lock files and the daemon as JSON and text, the same in every
// command.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "apps/cli/options/device_choice.h"
#include "apps/cli/terminal/output.h"
#include "cache/database/tuning_store.h"
#include "cache/records/pins.h"
#include "runtime/device/device.h"
#include "runtime/launch/kernel_cache.h"

namespace dorajit::cli {

Json to_json(const launch::DeviceId& id, const device::DeviceInfo& info);
Json to_json(const Statistics& statistics);

// Where winners are kept, or why they are not.
Json describe(cache::TuningStore& store);
// The same in one line: "winners are kept in ...".
std::string where_winners_are(cache::TuningStore& store);

// Whether other processes will find what this one tunes; prints an error that says why if not.
bool check_winners_are_kept(cache::TuningStore& store);

// `status` is the document that the daemon sends (docs/daemon_protocol.md). Members that are
// missing or of another type are left out.
std::string daemon_text(const Json& status);

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
