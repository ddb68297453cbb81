// Devices, counts and stores as JSON, the same in every command.
#pragma once

#include "apps/cli/options/device_choice.h"
#include "apps/cli/terminal/output.h"
#include "cache/database/tuning_store.h"
#include "runtime/base/statistics.h"
#include "runtime/device/device.h"

namespace dorajit::cli {

Json to_json(const launch::DeviceId& id, const device::DeviceInfo& info);
Json to_json(const Statistics& statistics);

// Where winners are kept, or why they are not.
Json describe(cache::TuningStore& store);
// The same in one line: "winners are kept in ...".
std::string where_winners_are(cache::TuningStore& store);

// Whether other processes will find what this one tunes; prints an error that says why if not.
bool check_winners_are_kept(cache::TuningStore& store);

}  // namespace dorajit::cli
