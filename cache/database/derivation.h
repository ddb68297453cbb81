// Derives the winners of a database from its trials. Call inside a write transaction.
#pragma once

#include <cstdint>
#include <span>

#include "cache/database/sqlite_connection.h"
#include "cache/database/tuning_store.h"
#include "cache/records/progress.h"
#include "cache/records/tuning_records.h"

namespace dorajit::cache {

// Adds the trials and derives the winners of the problems with new trials.
SqliteResult<MergeCounts> merge_trials(Connection& connection, std::span<const Trial> trials,
                                       const Progress& progress = {});

// Derives all winners and returns their number.
SqliteResult<std::int64_t> derive_winners(Connection& connection);

}  // namespace dorajit::cache
