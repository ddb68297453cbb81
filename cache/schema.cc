#include "cache/schema.h"

#include <format>

#include "cache/default_backfill.h"

namespace dorajit::cache {
namespace {

constexpr const char* kVersion1 = R"sql(
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
  verdict TEXT NOT NULL,
  median_ns REAL,
  mad_ns REAL,
  samples INTEGER NOT NULL,
  created_unix_s INTEGER NOT NULL,
  host TEXT NOT NULL,
  checksum INTEGER NOT NULL UNIQUE
) STRICT;
CREATE INDEX trials_by_problem ON trials (device, problem);
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

constexpr const char* kVersion2 = "ALTER TABLE trials ADD COLUMN default_config TEXT";

// The condition is that of select_bad_trials(), which the index serves.
constexpr const char* kVersion3 = R"sql(
ALTER TABLE trials ADD COLUMN log_ratio REAL;
ALTER TABLE trials ADD COLUMN log_ratio_error REAL;
CREATE INDEX bad_trials ON trials (device)
  WHERE verdict NOT IN ('ok', 'spills', 'failed_to_compile');
)sql";

constexpr const char* kVersion4 = R"sql(
CREATE TABLE imports (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  created_unix_s INTEGER NOT NULL,
  source TEXT NOT NULL
) STRICT;
CREATE TABLE import_trials (
  trial INTEGER NOT NULL,
  import INTEGER NOT NULL,
  PRIMARY KEY (trial, import)
) STRICT, WITHOUT ROWID;
)sql";

constexpr Migration kMigrations[] = {
    {1, kVersion1},
    {2, kVersion2, backfill_defaults},
    {3, kVersion3},
    {4, kVersion4},
};

}  // namespace

std::span<const Migration> migrations() { return kMigrations; }

std::int64_t schema_version() { return migrations().back().version; }

SqliteStatus migrate(Connection& connection, std::span<const Migration> steps) {
  DORAJIT_ASSIGN(const auto version, connection.query_integer("PRAGMA user_version"));
  for (const Migration& step : steps) {
    if (step.version <= version) continue;
    DORAJIT_TRY(connection.execute(step.sql));
    if (step.then != nullptr) {
      DORAJIT_TRY(step.then(connection));
    }
    const std::string mark = std::format("PRAGMA user_version = {}", step.version);
    DORAJIT_TRY(connection.execute(mark.c_str()));
  }
  return {};
}

SqliteStatus build_schema(Connection& connection) {
  const std::string mark = std::format("PRAGMA application_id = {}", kApplicationId);
  DORAJIT_TRY(connection.execute("BEGIN IMMEDIATE"));
  DORAJIT_TRY(connection.execute(mark.c_str()));
  DORAJIT_TRY(migrate(connection, migrations()));
  DORAJIT_TRY(connection.execute("COMMIT"));

  DORAJIT_ASSIGN(const auto mode, connection.query_text("PRAGMA journal_mode = WAL"));
  if (mode != "wal") {
    return std::unexpected(
        SqliteError{SQLITE_ERROR, "PRAGMA journal_mode = WAL: the file system cannot hold a WAL"});
  }
  return connection.execute("PRAGMA wal_checkpoint(TRUNCATE)");
}

}  // namespace dorajit::cache
