// The tables of tuning.db (docs/tuning_database.md).
#pragma once

#include <cstdint>
#include <string>

#include "cache/database/sqlite_connection.h"

namespace dorajit::cache {

inline constexpr std::int64_t kApplicationId = 0x444F524A;  // "DORJ"
inline constexpr std::int64_t kSchemaVersion = 1;           // user_version

// Gives an empty database its tables and marks.
SqliteStatus build_schema(Connection& connection);

// Changes a file to WAL mode and leaves the WAL empty.
SqliteStatus begin_wal(Connection& connection);

// The first difference from the schema; empty if there is none. Call it before any other query: a
// view, a trigger or a table with computed columns may make any query run for ever.
SqliteResult<std::string> difference_from_schema(Connection& connection);

// Whether there is a table of that name with the definition of the schema.
SqliteResult<bool> is_table_of_schema(Connection& connection, const std::string& name);

}  // namespace dorajit::cache
