// The tables of tuning.db and how they came to be (docs/tuning_database.md).
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "cache/sqlite_connection.h"

namespace dorajit::cache {

inline constexpr std::int64_t kApplicationId = 0x444F524A;  // "DORJ"

struct Migration {
  std::int64_t version;  // user_version once `sql` has run; each one above the one before
  const char* sql;
  // What SQL cannot do; runs after `sql`, in the same transaction.
  SqliteStatus (*then)(Connection&) = nullptr;
};

// Every step from an empty file to today's schema, oldest first. A released step never changes.
std::span<const Migration> migrations();

std::int64_t schema_version();

// Brings the database to the last version of `steps`. Call inside a write transaction, so that
// of several processes one migrates and the others find it done.
SqliteStatus migrate(Connection& connection, std::span<const Migration> steps);

// Makes an empty file into a complete database: tables, marks, WAL mode, nothing left in the WAL.
SqliteStatus build_schema(Connection& connection);

}  // namespace dorajit::cache
