#include "cache/database/schema.h"

#include <format>

namespace dorajit::cache {
namespace {

// SQLite stores this text and schema_check.cc compares it: a change requires a new schema version.
// The condition of bad_trials must be that of select_bad_trials(), which uses the index.
constexpr const char* kTables = R"sql(
CREATE TABLE trials (
  id INTEGER PRIMARY KEY,
  device TEXT NOT NULL,
  problem TEXT NOT NULL,
  driver TEXT NOT NULL,
  policy TEXT NOT NULL,
  space TEXT NOT NULL,
  tuner TEXT NOT NULL,
  templates TEXT NOT NULL,
  config TEXT NOT NULL,
  default_config TEXT NOT NULL,
  verdict TEXT NOT NULL,
  median_ns REAL,
  mad_ns REAL,
  log_ratio REAL,
  log_ratio_error REAL,
  samples INTEGER NOT NULL,
  created_unix_s INTEGER NOT NULL,
  host TEXT NOT NULL,
  checksum INTEGER NOT NULL UNIQUE
) STRICT;
CREATE INDEX trials_by_problem ON trials (device, problem);
CREATE INDEX bad_trials ON trials (device)
  WHERE verdict NOT IN ('ok', 'spills', 'failed_to_compile');
CREATE TABLE winners (
  device TEXT NOT NULL,
  problem TEXT NOT NULL,
  driver TEXT NOT NULL,
  policy TEXT NOT NULL,
  space TEXT NOT NULL,
  tuner TEXT NOT NULL,
  templates TEXT NOT NULL,
  config TEXT NOT NULL,
  default_config TEXT NOT NULL,
  median_ns REAL,
  default_median_ns REAL,
  created_unix_s INTEGER NOT NULL,
  checksum INTEGER NOT NULL,
  PRIMARY KEY (device, problem)
) STRICT, WITHOUT ROWID;
)sql";

}  // namespace

SqliteStatus create_tables(Connection& connection) { return connection.execute(kTables); }

SqliteStatus build_schema(Connection& connection) {
  const std::string marks = std::format("PRAGMA application_id = {}; PRAGMA user_version = {}",
                                        kApplicationId, kSchemaVersion);
  DORAJIT_TRY(connection.execute("BEGIN IMMEDIATE"));
  DORAJIT_TRY(connection.execute(marks.c_str()));
  DORAJIT_TRY(create_tables(connection));
  DORAJIT_TRY(connection.execute("COMMIT"));

  DORAJIT_ASSIGN(const auto mode, connection.query_text("PRAGMA journal_mode = WAL"));
  if (mode != "wal") {
    return std::unexpected(
        SqliteError{SQLITE_ERROR, "PRAGMA journal_mode = WAL: the file system cannot hold a WAL"});
  }
  return connection.execute("PRAGMA wal_checkpoint(TRUNCATE)");
}

}  // namespace dorajit::cache
