// Which trials came from elsewhere, and with which import, so that it can be undone
// (docs/tuning_database.md). Call inside a transaction, a write one for what writes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/sqlite_connection.h"
#include "cache/tuning_records.h"
#include "cache/tuning_store.h"

namespace dorajit::cache {

// Adds the trials, derives winners, and notes which trials this import added. Where no trial is new
// nothing changes, and there is no id.
SqliteResult<ImportCounts> import_trials(Connection& connection, std::span<const Trial> trials,
                                         std::string_view source, const Progress& progress);

// Takes out the trials that the import added, derives the winners of their problems anew and
// forgets the import. Nothing where there is no such import.
SqliteResult<std::optional<UndoCounts>> undo_import(Connection& connection, std::string_view id);

// The oldest first.
SqliteResult<std::vector<ImportRecord>> select_imports(Connection& connection);

}  // namespace dorajit::cache
