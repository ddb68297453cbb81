// Devices, counts, stores and the daemon as JSON and text, the same in every command.
#pragma once

#include <string>

#include "apps/cli/options/device_choice.h"
#include "apps/cli/terminal/output.h"
#include "cache/database/tuning_store.h"
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

}  // namespace dorajit::cli
