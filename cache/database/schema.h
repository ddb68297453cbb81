// The tables of tuning.db (docs/tuning_database.md), and whether a file has them.
#pragma once

#include <chrono>
#include <cstdint>
#include <expected>
#include <string>
#include <utility>

#include "cache/database/sqlite_connection.h"
#include "cache/files/directories.h"

namespace dorajit::cache {

inline constexpr std::int64_t kApplicationId = 0x444F524A;  // "DORJ"
inline constexpr std::int64_t kSchemaVersion = 1;           // user_version

// Gives an empty database its tables and marks.
SqliteStatus build_schema(Connection& connection);

// Whether there is a table of that name with the definition of the schema.
SqliteResult<bool> is_table_of_schema(Connection& connection, const std::string& name);

enum class FileState {
  kAbsent,
  kDamaged,   // not a database, another program's, or not completely readable by SQLite
  kNewer,     // of a later schema: must not be modified
  kBusy,      // other processes held it for the entire wait
  kUnusable,  // the file system or SQLite refused access, or reading failed: says nothing about it
};

// Why a file is not used as a database.
struct Unfit {
  Unfit(FileState what, std::string why) : state(what), reason(std::move(why)) {}
  Unfit(const SqliteError& error);  // NOLINT(google-explicit-constructor): for DORAJIT_ASSIGN

  FileState state;
  std::string reason;
};

enum class CheckDepth {
  kMarks,      // application id and version: one page
  kStructure,  // every page, if the file is small enough for a fast check
  kWhole,      // every page and index, regardless of time
};

// A connection to a database of this schema.
std::expected<Connection, Unfit> inspect(const std::string& path, Connection::Mode mode,
                                         CheckDepth depth, std::chrono::milliseconds wait,
                                         FilePlace place);

}  // namespace dorajit::cache
