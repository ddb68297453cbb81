// The winners of a database from its trials. Call inside a write transaction.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "cache/progress.h"
#include "cache/sqlite_connection.h"
#include "cache/tuning_records.h"
#include "cache/tuning_store.h"

namespace dorajit::cache {

using DeviceAndProblem = std::pair<std::string, std::string>;

// Adds the trials and derives the winners of the problems that have new ones. Calls `each` with
// every trial and whether it was added.
SqliteResult<MergeCounts> merge_trials(
    Connection& connection, std::span<const Trial> trials,
    const std::function<void(const Trial&, bool added)>& each = {}, const Progress& progress = {});

// Derives the winners of those problems: how many are other ones than before.
SqliteResult<std::int64_t> derive_winners_of(Connection& connection,
                                             const std::set<DeviceAndProblem>& pairs);

// Derives all winners, and counts them.
SqliteResult<std::int64_t> derive_winners(Connection& connection);

}  // namespace dorajit::cache
