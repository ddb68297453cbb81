#include "cache/imports.h"

#include <unistd.h>

#include <chrono>
#include <set>
#include <utility>

#include "cache/derivation.h"
#include "runtime/base/hash.h"

namespace dorajit::cache {
namespace {

constexpr std::size_t kIdDigits = 12;

std::string make_id(std::span<const Trial> trials, std::string_view source) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  Hasher hasher("import/1");
  hasher.add("source", source)
      .add("time_ns", std::chrono::duration_cast<std::chrono::nanoseconds>(now).count())
      .add("process", std::int64_t{::getpid()});
  for (const Trial& trial : trials) hasher.add("trial", checksum(trial));
  return hasher.digest().substr(0, kIdDigits);
}

template <class... Values>
SqliteResult<Statement> prepare_with(Connection& connection, std::string_view sql,
                                     const Values&... values) {
  auto statement = connection.prepare(sql);
  if (!statement) return statement;
  int parameter = 0;
  (statement->bind(++parameter, values), ...);
  return statement;
}

template <class... Values>
SqliteStatus run(Connection& connection, std::string_view sql, const Values&... values) {
  DORAJIT_ASSIGN(auto statement, prepare_with(connection, sql, values...));
  DORAJIT_TRY(statement.step());
  return {};
}

// The first column of the first row.
template <class... Values>
SqliteResult<std::optional<std::int64_t>> ask(Connection& connection, std::string_view sql,
                                              const Values&... values) {
  DORAJIT_ASSIGN(auto statement, prepare_with(connection, sql, values...));
  DORAJIT_ASSIGN(const auto row, statement.step());
  return row ? std::optional(statement.integer(0)) : std::nullopt;
}

struct TrialRow {
  std::int64_t id = 0;
  DeviceAndProblem pair;
};

// Earlier versions noted a trial with each import that brought it: there the last one takes it out.
SqliteResult<std::vector<TrialRow>> noted_by_it_alone(Connection& connection, std::int64_t import) {
  DORAJIT_ASSIGN(auto statement,
                 prepare_with(connection,
                              "SELECT t.id, t.device, t.problem FROM import_trials i"
                              " JOIN trials t ON t.checksum = i.trial WHERE i.import = ?1"
                              " AND NOT EXISTS (SELECT 1 FROM import_trials o"
                              " WHERE o.trial = i.trial AND o.import <> ?1)",
                              import));
  std::vector<TrialRow> rows;
  DORAJIT_TRY(for_each_row(statement, [&](const Statement& row) {
    rows.push_back({.id = row.integer(0), .pair = {row.text(1), row.text(2)}});
  }));
  return rows;
}

// Ids count from 1 without gaps, which salvage relies on: damage may hide the largest.
SqliteStatus close_gaps(Connection& connection) {
  std::vector<std::int64_t> ids;
  {
    DORAJIT_ASSIGN(auto statement,
                   connection.prepare("SELECT id FROM trials NOT INDEXED ORDER BY id"));
    DORAJIT_TRY(
        for_each_row(statement, [&](const Statement& row) { ids.push_back(row.integer(0)); }));
  }
  DORAJIT_ASSIGN(auto move, connection.prepare("UPDATE trials SET id = ?1 WHERE id = ?2"));
  std::int64_t next = 0;
  for (const std::int64_t id : ids) {
    if (id == ++next) continue;
    move.bind(1, next);
    move.bind(2, id);
    DORAJIT_TRY(move.step());
    move.reset();
  }
  return {};
}

}  // namespace

SqliteResult<ImportCounts> import_trials(Connection& connection, std::span<const Trial> trials,
                                         std::string_view source, const Progress& progress) {
  std::vector<std::int64_t> added;
  const auto note = [&](const Trial& trial, bool is_new) {
    if (is_new) added.push_back(checksum(trial));
  };
  ImportCounts counts;
  DORAJIT_ASSIGN(counts.trials, merge_trials(connection, trials, note, progress));
  if (added.empty()) return counts;

  counts.id = make_id(trials, source);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  DORAJIT_ASSIGN(
      const auto import,
      ask(connection,
          "INSERT INTO imports (name, created_unix_s, source) VALUES (?1, ?2, ?3)"
          " RETURNING id",
          std::string_view(counts.id),
          std::int64_t{std::chrono::duration_cast<std::chrono::seconds>(now).count()}, source));
  DORAJIT_ASSIGN(auto noted, connection.prepare("INSERT OR IGNORE INTO import_trials"
                                                " (trial, import) VALUES (?1, ?2)"));
  for (const std::int64_t one : added) {
    noted.bind(1, one);
    noted.bind(2, *import);
    DORAJIT_TRY(noted.step());
    noted.reset();
  }
  return counts;
}

SqliteResult<std::optional<UndoCounts>> undo_import(Connection& connection, std::string_view id) {
  DORAJIT_ASSIGN(const auto import, ask(connection, "SELECT id FROM imports WHERE name = ?1", id));
  if (!import) return std::optional<UndoCounts>();
  DORAJIT_ASSIGN(const auto rows, noted_by_it_alone(connection, *import));
  DORAJIT_ASSIGN(const auto listed,
                 ask(connection, "SELECT count(*) FROM import_trials WHERE import = ?1", *import));

  std::set<DeviceAndProblem> touched;
  DORAJIT_ASSIGN(auto removal, connection.prepare("DELETE FROM trials WHERE id = ?1"));
  for (const TrialRow& row : rows) {
    removal.bind(1, row.id);
    DORAJIT_TRY(removal.step());
    removal.reset();
    touched.insert(row.pair);
  }
  for (const char* sql :
       {"DELETE FROM import_trials WHERE import = ?1", "DELETE FROM imports WHERE id = ?1"}) {
    DORAJIT_TRY(run(connection, sql, *import));
  }
  DORAJIT_ASSIGN(const auto winners, derive_winners_of(connection, touched));
  DORAJIT_TRY(close_gaps(connection));
  return std::optional(UndoCounts{
      .removed = std::ssize(rows), .kept = *listed - std::ssize(rows), .winners = winners});
}

SqliteResult<std::vector<ImportRecord>> select_imports(Connection& connection) {
  std::vector<ImportRecord> records;
  // A database of an older schema that may not be written has none.
  DORAJIT_ASSIGN(
      const auto tables,
      connection.query_integer(
          "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'imports'"));
  if (tables == 0) return records;
  DORAJIT_ASSIGN(auto statement,
                 connection.prepare(
                     "SELECT i.name, i.created_unix_s, i.source, count(t.trial) FROM imports i"
                     " LEFT JOIN import_trials t ON t.import = i.id GROUP BY i.id ORDER BY i.id"));
  DORAJIT_TRY(for_each_row(statement, [&](const Statement& row) {
    records.push_back({.id = row.text(0),
                       .created_unix_s = row.integer(1),
                       .source = row.text(2),
                       .trials = row.integer(3)});
  }));
  return records;
}

}  // namespace dorajit::cache
