// The tables of tuning.db (docs/tuning_database.md).
#pragma once

#include <cstdint>

#include "cache/database/sqlite_connection.h"

namespace dorajit::cache {

inline constexpr std::int64_t kApplicationId = 0x444F524A;  // "DORJ"
inline constexpr std::int64_t kSchemaVersion = 1;           // user_version

// For an empty database.
SqliteStatus create_tables(Connection& connection);

// Turns an empty file into a complete database: tables, marks, WAL mode, an empty WAL.
SqliteStatus build_schema(Connection& connection);

}  // namespace dorajit::cache
