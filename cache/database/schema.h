// The tables of tuning.db (docs/tuning_database.md), and whether a file has them.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "cache/database/sqlite_connection.h"
#include "cache/files/directories.h"

namespace dorajit::cache {

inline constexpr std::int64_t kApplicationId = 0x444F524A;  // "DORJ"
inline constexpr std::int64_t kSchemaVersion = 1;           // user_version

// Gives an empty database its tables and marks.
SqliteStatus build_schema(Connection& connection);

// Changes a file to WAL mode and leaves the WAL empty.
SqliteStatus begin_wal(Connection& connection);

// Whether there is a table of that name with the definition of the schema.
SqliteResult<bool> is_table_of_schema(Connection& connection, const std::string& name);

enum class FileState {
  kUsable,
  kAbsent,
  kDamaged,   // not a database, another program's, or not completely readable by SQLite
  kNewer,     // of a later schema: must not be modified
  kBusy,      // other processes held it for the entire wait
  kUnusable,  // the file system or SQLite refused access, or reading failed: says nothing about it
};

enum class CheckDepth {
  kMarks,      // application id and version: one page
  kStructure,  // every page, if the file is small enough for a fast check
  kWhole,      // every page and index, regardless of time
};

struct Inspection {
  FileState state = FileState::kUnusable;
  std::string reason;                    // set unless kUsable or kAbsent
  std::optional<Connection> connection;  // set if kUsable
};

Inspection inspect(const std::string& path, Connection::Mode mode, CheckDepth depth,
                   std::chrono::milliseconds wait, FilePlace place);

}  // namespace dorajit::cache
