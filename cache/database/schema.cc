#include "cache/database/schema.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstddef>
#include <format>
#include <map>
#include <utility>

#include "runtime/base/printable_text.h"

namespace dorajit::cache {
namespace {

// SQLite stores this text, which difference_from_schema() compares: a change requires a new schema
// version. The condition of bad_trials must be that of select_bad_trials(), which uses the index.
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

constexpr std::size_t kMaxNameBytes = 64;

struct Definition {
  std::string type;
  std::string table;
  std::string sql;

  friend bool operator==(const Definition&, const Definition&) = default;
};
using Definitions = std::map<std::string, Definition>;  // by name

SqliteResult<Definitions> read_definitions(Connection& connection) {
  DORAJIT_ASSIGN(auto statement,
                 connection.prepare("SELECT name, type, tbl_name, sql FROM sqlite_schema"));
  Definitions definitions;
  DORAJIT_TRY(for_each_row(statement, [&](const Statement& row) {
    definitions[row.text(0)] = {.type = row.text(1), .table = row.text(2), .sql = row.text(3)};
  }));
  return definitions;
}

SqliteResult<Definitions> make_definitions() {
  DORAJIT_ASSIGN(auto connection, Connection::open(":memory:", Connection::Mode::kReadWrite));
  DORAJIT_TRY(connection.execute(kTables));
  return read_definitions(connection);
}

// Computed once, because it takes about a millisecond. Never destroyed: a thread may be reading a
// database while the process exits.
const SqliteResult<Definitions>& expected_definitions() {
  static const auto& expected = *new SqliteResult<Definitions>(make_definitions());
  return expected;
}

std::string shown(const Definition& definition, const std::string& name) {
  return printable_line(std::format("{} \"{}\"", definition.type.substr(0, kMaxNameBytes),
                                    name.substr(0, kMaxNameBytes)));
}

// A check takes about 1 ms for a file of this size, which is the limit for an open.
constexpr off_t kCheapToCheckBytes = off_t{512} << 10;

std::unexpected<Unfit> unfit(FileState state, std::string reason) {
  return std::unexpected(Unfit(state, std::move(reason)));
}

// SQLite's checks report a page that could not be read, after an I/O error or for lack of memory,
// like a damaged one.
bool is_about_unread_page(const std::string& verdict) {
  return verdict.contains("unable to get the page") || verdict.contains("failed to get page");
}

const char* check_statement(CheckDepth depth, off_t bytes) {
  if (depth == CheckDepth::kWhole) return "PRAGMA integrity_check(1)";
  if (depth == CheckDepth::kStructure && bytes <= kCheapToCheckBytes) {
    return "PRAGMA quick_check(1)";
  }
  return nullptr;
}

// The first difference from the schema; empty if there is none. Call it before any other query: a
// view, a trigger or a table with computed columns may make any query run for ever.
SqliteResult<std::string> difference_from_schema(Connection& connection) {
  const auto& expected = expected_definitions();
  if (!expected) return std::unexpected(expected.error());
  DORAJIT_ASSIGN(const auto found, read_definitions(connection));
  for (const auto& [name, definition] : found) {
    if (!expected->contains(name)) {
      return std::format("its {} is not part of schema version {}", shown(definition, name),
                         kSchemaVersion);
    }
  }
  for (const auto& [name, definition] : *expected) {
    const auto known = found.find(name);
    if (known == found.end() || known->second != definition) {
      return std::format("its {} is not defined as in schema version {}", shown(definition, name),
                         kSchemaVersion);
    }
  }
  return std::string();
}

}  // namespace

SqliteStatus build_schema(Connection& connection) {
  const std::string marks = std::format("PRAGMA application_id = {}; PRAGMA user_version = {}",
                                        kApplicationId, kSchemaVersion);
  DORAJIT_TRY(connection.execute("BEGIN IMMEDIATE"));
  DORAJIT_TRY(connection.execute(marks.c_str()));
  DORAJIT_TRY(connection.execute(kTables));
  return connection.execute("COMMIT");
}

SqliteResult<bool> is_table_of_schema(Connection& connection, const std::string& name) {
  const auto& expected = expected_definitions();
  if (!expected) return std::unexpected(expected.error());
  DORAJIT_ASSIGN(const auto found, read_definitions(connection));
  const auto table = found.find(name);
  return table != found.end() && expected->contains(name) && expected->at(name) == table->second;
}

Unfit::Unfit(const SqliteError& error)
    : state(is_damage(error) ? FileState::kDamaged
            : is_busy(error) ? FileState::kBusy
                             : FileState::kUnusable),
      reason(error.message) {}

std::expected<Connection, Unfit> inspect(const std::string& path, Connection::Mode mode,
                                         CheckDepth depth, std::chrono::milliseconds wait,
                                         FilePlace place) {
  // Besides SQLite, only stat() is used: closing a descriptor of the file would release the locks
  // that SQLite holds on it in this process.
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0) {
    if (errno == ENOENT) return unfit(FileState::kAbsent, "there is no such file");
    return unfit(FileState::kUnusable, file_error("stat", path, errno, place).message);
  }
  if (!S_ISREG(info.st_mode)) {
    return unfit(FileState::kUnusable, shown_path(path) + " is not a file");
  }
  if (info.st_size == 0) return unfit(FileState::kDamaged, "the file is empty");

  DORAJIT_ASSIGN(Connection connection, Connection::open(path, mode));
  connection.set_busy_timeout(wait);
  if (mode != Connection::Mode::kReadWrite) connection.limit_steps_by_size_of(path);

  DORAJIT_ASSIGN(const auto application, connection.query_integer("PRAGMA application_id"));
  if (application != kApplicationId) {
    return unfit(FileState::kDamaged,
                 std::format("its application id is {:#x}, not dorajit's", application));
  }
  DORAJIT_ASSIGN(const auto version, connection.query_integer("PRAGMA user_version"));
  if (version > kSchemaVersion) {
    if (mode == Connection::Mode::kReadWrite) connection.forbid_checkpoint_on_close();
    return unfit(FileState::kNewer,
                 std::format("{} has schema version {}, written by a newer dorajit (this one "
                             "supports {}): update dorajit",
                             shown_path(path), version, kSchemaVersion));
  }
  if (version < kSchemaVersion) return unfit(FileState::kDamaged, "it has no schema version");
  DORAJIT_ASSIGN(std::string difference, difference_from_schema(connection));
  if (!difference.empty()) return unfit(FileState::kDamaged, std::move(difference));

  if (const char* check = check_statement(depth, info.st_size); check != nullptr) {
    DORAJIT_ASSIGN(std::string verdict, connection.query_text(check));
    if (is_about_unread_page(verdict)) {
      return unfit(FileState::kUnusable, "it cannot be read completely: " + verdict);
    }
    if (verdict != "ok") return unfit(FileState::kDamaged, std::move(verdict));
  }
  return connection;
}

}  // namespace dorajit::cache
