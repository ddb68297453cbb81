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
  auto statement = prepare_with(connection, sql, values...);
  if (!statement) return std::unexpected(std::move(statement).error());
  auto row = statement->step();
  if (!row) return std::unexpected(std::move(row).error());
  return {};
}

// The first column of the first row.
template <class... Values>
SqliteResult<std::optional<std::int64_t>> ask(Connection& connection, std::string_view sql,
                                              const Values&... values) {
  auto statement = prepare_with(connection, sql, values...);
  if (!statement) return std::unexpected(std::move(statement).error());
  auto row = statement->step();
  if (!row) return std::unexpected(std::move(row).error());
  return *row ? std::optional(statement->integer(0)) : std::nullopt;
}

// `sql` takes a checksum and the import.
SqliteStatus note_all(Connection& connection, std::span<const std::int64_t> checksums,
                      std::string_view sql, std::int64_t import) {
  auto note = connection.prepare(sql);
  if (!note) return std::unexpected(std::move(note).error());
  for (const std::int64_t one : checksums) {
    note->bind(1, one);
    note->bind(2, import);
    if (auto row = note->step(); !row) return std::unexpected(std::move(row).error());
    note->reset();
  }
  return {};
}

struct TrialRow {
  std::int64_t id = 0;
  DeviceAndProblem pair;
};

SqliteResult<std::vector<TrialRow>> brought_by_it_alone(Connection& connection,
                                                        std::int64_t import) {
  auto statement = prepare_with(connection,
                                "SELECT t.id, t.device, t.problem FROM import_trials i"
                                " JOIN trials t ON t.checksum = i.trial WHERE i.import = ?1"
                                " AND NOT EXISTS (SELECT 1 FROM import_trials o"
                                " WHERE o.trial = i.trial AND o.import <> ?1)",
                                import);
  if (!statement) return std::unexpected(std::move(statement).error());
  std::vector<TrialRow> rows;
  for (;;) {
    auto row = statement->step();
    if (!row) return std::unexpected(std::move(row).error());
    if (!*row) return rows;
    rows.push_back({.id = statement->integer(0), .pair = {statement->text(1), statement->text(2)}});
  }
}

// Ids count from 1 without gaps, which salvage relies on: damage may hide the largest.
SqliteStatus close_gaps(Connection& connection) {
  std::vector<std::int64_t> ids;
  {
    auto statement = connection.prepare("SELECT id FROM trials NOT INDEXED ORDER BY id");
    if (!statement) return std::unexpected(std::move(statement).error());
    for (;;) {
      auto row = statement->step();
      if (!row) return std::unexpected(std::move(row).error());
      if (!*row) break;
      ids.push_back(statement->integer(0));
    }
  }
  auto move = connection.prepare("UPDATE trials SET id = ?1 WHERE id = ?2");
  if (!move) return std::unexpected(std::move(move).error());
  std::int64_t next = 0;
  for (const std::int64_t id : ids) {
    if (id == ++next) continue;
    move->bind(1, next);
    move->bind(2, id);
    if (auto row = move->step(); !row) return std::unexpected(std::move(row).error());
    move->reset();
  }
  return {};
}

}  // namespace

SqliteResult<ImportCounts> import_trials(Connection& connection, std::span<const Trial> trials,
                                         std::string_view source, const Progress& progress) {
  // Those that were new, and those that imports have brought: what the new import is noted with.
  std::vector<std::int64_t> added;
  std::vector<std::int64_t> known;
  auto merged = merge_trials(
      connection, trials,
      [&](const Trial& trial, bool is_new) { (is_new ? added : known).push_back(checksum(trial)); },
      progress);
  if (!merged) return std::unexpected(std::move(merged).error());
  ImportCounts counts{.trials = *merged, .id = {}};
  if (added.empty()) return counts;

  counts.id = make_id(trials, source);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  auto import =
      ask(connection,
          "INSERT INTO imports (name, created_unix_s, source) VALUES (?1, ?2, ?3)"
          " RETURNING id",
          std::string_view(counts.id),
          std::int64_t{std::chrono::duration_cast<std::chrono::seconds>(now).count()}, source);
  if (!import) return std::unexpected(std::move(import).error());
  if (auto status = note_all(connection, known,
                             "INSERT OR IGNORE INTO import_trials (trial, import) SELECT ?1, ?2"
                             " WHERE EXISTS (SELECT 1 FROM import_trials WHERE trial = ?1)",
                             **import);
      !status) {
    return std::unexpected(std::move(status).error());
  }
  if (auto status =
          note_all(connection, added,
                   "INSERT OR IGNORE INTO import_trials (trial, import) VALUES (?1, ?2)", **import);
      !status) {
    return std::unexpected(std::move(status).error());
  }
  return counts;
}

SqliteResult<std::optional<UndoCounts>> undo_import(Connection& connection, std::string_view id) {
  auto import = ask(connection, "SELECT id FROM imports WHERE name = ?1", id);
  if (!import) return std::unexpected(std::move(import).error());
  if (!*import) return std::optional<UndoCounts>();
  auto rows = brought_by_it_alone(connection, **import);
  if (!rows) return std::unexpected(std::move(rows).error());
  auto listed = ask(connection, "SELECT count(*) FROM import_trials WHERE import = ?1", **import);
  if (!listed) return std::unexpected(std::move(listed).error());

  std::set<DeviceAndProblem> touched;
  auto removal = connection.prepare("DELETE FROM trials WHERE id = ?1");
  if (!removal) return std::unexpected(std::move(removal).error());
  for (const TrialRow& row : *rows) {
    removal->bind(1, row.id);
    if (auto done = removal->step(); !done) return std::unexpected(std::move(done).error());
    removal->reset();
    touched.insert(row.pair);
  }
  for (const char* sql :
       {"DELETE FROM import_trials WHERE import = ?1", "DELETE FROM imports WHERE id = ?1"}) {
    if (auto status = run(connection, sql, **import); !status) {
      return std::unexpected(std::move(status).error());
    }
  }
  auto winners = derive_winners_of(connection, touched);
  if (!winners) return std::unexpected(std::move(winners).error());
  if (auto status = close_gaps(connection); !status) {
    return std::unexpected(std::move(status).error());
  }
  return std::optional(UndoCounts{
      .removed = std::ssize(*rows), .kept = **listed - std::ssize(*rows), .winners = *winners});
}

SqliteResult<std::vector<ImportRecord>> select_imports(Connection& connection) {
  std::vector<ImportRecord> records;
  // A database of an older schema that may not be written has none.
  auto tables = connection.query_integer(
      "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'imports'");
  if (!tables) return std::unexpected(std::move(tables).error());
  if (*tables == 0) return records;
  auto statement = connection.prepare(
      "SELECT i.name, i.created_unix_s, i.source, count(t.trial) FROM imports i"
      " LEFT JOIN import_trials t ON t.import = i.id GROUP BY i.id ORDER BY i.id");
  if (!statement) return std::unexpected(std::move(statement).error());
  for (;;) {
    auto row = statement->step();
    if (!row) return std::unexpected(std::move(row).error());
    if (!*row) return records;
    records.push_back({.id = statement->text(0),
                       .created_unix_s = statement->integer(1),
                       .source = statement->text(2),
                       .trials = statement->integer(3)});
  }
}

}  // namespace dorajit::cache
