#include "cache/database/tuning_rows.h"

#include <algorithm>
#include <cmath>
#include <format>
#include <limits>
#include <set>
#include <string>
#include <utility>

#include "cache/records/tuning_records.h"
#include "cache/records/winner_choice.h"
#include "kernel_templates/config.h"

namespace dorajit::cache {
namespace {

#define DORAJIT_TRIAL_COLUMNS                                                          \
  "device, problem, driver, policy, space, tuner, templates, config, default_config, " \
  "verdict, median_ns, mad_ns, log_ratio, log_ratio_error, samples, created_unix_s, "  \
  "host, checksum"
#define DORAJIT_WINNER_COLUMNS                                                         \
  "device, problem, driver, policy, space, tuner, templates, config, default_config, " \
  "median_ns, default_median_ns, created_unix_s, checksum"

constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();  // stored as NULL

Environment read_environment(const Statement& row) {
  return {row.text(2), row.text(3), row.text(4), row.text(5), row.text(6)};
}

std::optional<Trial> read_trial(const Statement& row) {
  const auto config = kernels::parse_config(row.text(7));
  const auto default_config = kernels::parse_config(row.text(8));
  const auto verdict = parse_verdict(row.text(9));
  if (!config || !default_config || !verdict) return std::nullopt;
  Trial trial{.problem = row.text(1),
              .device = row.text(0),
              .environment = read_environment(row),
              .config = *config,
              .default_config = *default_config,
              .verdict = *verdict,
              .median_ns = row.real(10),
              .mad_ns = row.real(11),
              .samples = static_cast<int>(row.integer(14)),
              .created_unix_s = row.integer(15),
              .host = row.text(16)};
  if (const double log_ratio = row.real(12); !std::isnan(log_ratio)) {
    trial.comparison = {.log_ratio = log_ratio, .standard_error = row.real(13)};
  }
  if (checksum(trial) != row.integer(17) || !fault_of(trial).empty()) return std::nullopt;
  return trial;
}

std::optional<Winner> read_winner(const Statement& row) {
  const auto config = kernels::parse_config(row.text(7));
  const auto default_config = kernels::parse_config(row.text(8));
  if (!config || !default_config) return std::nullopt;
  Winner winner{.problem = row.text(1),
                .device = row.text(0),
                .environment = read_environment(row),
                .config = *config,
                .default_config = *default_config,
                .median_ns = row.real(9),
                .default_median_ns = row.real(10),
                .created_unix_s = row.integer(11)};
  if (checksum(winner) != row.integer(12) || !fault_of(winner).empty()) return std::nullopt;
  return winner;
}

template <class... Values>
SqliteResult<Statement> prepare_trials(Connection& connection, std::string_view rest,
                                       const Values&... values) {
  return connection.prepare(std::format("SELECT " DORAJIT_TRIAL_COLUMNS " FROM trials {}", rest),
                            values...);
}

template <class... Values>
SqliteResult<Statement> prepare_winners(Connection& connection, std::string_view rest,
                                        const Values&... values) {
  return connection.prepare(std::format("SELECT " DORAJIT_WINNER_COLUMNS " FROM winners {}", rest),
                            values...);
}

// Appends the records of the rows that `read` accepts, even if an error ends the walk.
template <class Record>
SqliteStatus append_records(Statement& statement, std::optional<Record> (*read)(const Statement&),
                            std::vector<Record>& records,
                            const std::function<void(std::int64_t)>& each = {}) {
  std::int64_t rows = 0;
  return for_each_row(statement, [&](const Statement& row) {
    if (each) each(++rows);
    if (auto record = read(row)) records.push_back(*std::move(record));
  });
}

template <class Record>
SqliteResult<std::vector<Record>> records_of(SqliteResult<Statement> statement,
                                             std::optional<Record> (*read)(const Statement&),
                                             const std::function<void(std::int64_t)>& each = {}) {
  if (!statement) return std::unexpected(std::move(statement).error());
  std::vector<Record> records;
  DORAJIT_TRY(append_records(*statement, read, records, each));
  return records;
}

SqliteStatus delete_winner(Connection& connection, std::string_view device,
                           std::string_view problem) {
  DORAJIT_ASSIGN(auto statement,
                 connection.prepare("DELETE FROM winners WHERE device = ?1 AND problem = ?2",
                                    device, problem));
  DORAJIT_TRY(statement.step());
  return {};
}

// Whether the winner changed.
SqliteResult<bool> derive_winner(Connection& connection, const std::string& device,
                                 const std::string& problem) {
  DORAJIT_ASSIGN(const auto trials, select_trials(connection, device, problem));
  DORAJIT_ASSIGN(auto before, select_winner(connection, device, problem));
  if (before && before->device != device) before.reset();
  const auto after = choose_winner(trials);
  if (is_same(before, after)) return false;
  const SqliteStatus status =
      after ? put_winner(connection, *after) : delete_winner(connection, device, problem);
  if (!status) return std::unexpected(status.error());
  return true;
}

}  // namespace

SqliteStatus insert_trials(Connection& connection, std::span<const Trial> trials,
                           const std::function<void(const Trial&, bool added)>& each) {
  DORAJIT_ASSIGN(auto statement,
                 connection.prepare(
                     "INSERT INTO trials (" DORAJIT_TRIAL_COLUMNS
                     ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15,"
                     " ?16, ?17, ?18) ON CONFLICT (checksum) DO NOTHING RETURNING id"));
  for (const Trial& trial : trials) {
    const std::string config = kernels::to_text(trial.config);
    const std::string default_config = kernels::to_text(trial.default_config);
    const Environment& environment = trial.environment;
    statement.bind_all(
        trial.device, trial.problem, environment.driver, environment.policy, environment.space,
        environment.tuner, environment.templates, config, default_config, name(trial.verdict),
        trial.median_ns, trial.mad_ns, trial.comparison ? trial.comparison->log_ratio : kNothing,
        trial.comparison ? trial.comparison->standard_error : kNothing, std::int64_t{trial.samples},
        trial.created_unix_s, trial.host, checksum(trial));
    DORAJIT_ASSIGN(const bool added, statement.step());
    statement.reset();
    if (each) each(trial, added);
  }
  return {};
}

SqliteStatus put_winner(Connection& connection, const Winner& winner) {
  const std::string config = kernels::to_text(winner.config);
  const std::string default_config = kernels::to_text(winner.default_config);
  const Environment& environment = winner.environment;
  DORAJIT_ASSIGN(
      auto statement,
      connection.prepare("INSERT OR REPLACE INTO winners (" DORAJIT_WINNER_COLUMNS
                         ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
                         winner.device, winner.problem, environment.driver, environment.policy,
                         environment.space, environment.tuner, environment.templates, config,
                         default_config, winner.median_ns, winner.default_median_ns,
                         winner.created_unix_s, checksum(winner)));
  DORAJIT_TRY(statement.step());
  return {};
}

SqliteStatus insert_records(Connection& connection, std::span<const Trial> trials,
                            std::span<const Winner> winners) {
  return write_in_transaction(connection, [&]() -> SqliteStatus {
    DORAJIT_TRY(insert_trials(connection, trials));
    for (const Winner& winner : winners) DORAJIT_TRY(put_winner(connection, winner));
    return {};
  });
}

SqliteResult<ForgottenCounts> delete_records(Connection& connection, std::string_view device,
                                             std::string_view problem) {
  const auto delete_from = [&](std::string_view table) -> SqliteResult<std::int64_t> {
    DORAJIT_ASSIGN(auto statement,
                   connection.prepare(std::format("DELETE FROM {} WHERE ?1 IN ('', device) AND ?2 "
                                                  "IN ('', problem) RETURNING 1",
                                                  table),
                                      device, problem));
    std::int64_t rows = 0;
    DORAJIT_TRY(for_each_row(statement, [&](const Statement&) { ++rows; }));
    return rows;
  };
  ForgottenCounts counts;
  DORAJIT_ASSIGN(counts.trials, delete_from("trials"));
  DORAJIT_ASSIGN(counts.winners, delete_from("winners"));
  return counts;
}

SqliteResult<std::optional<Winner>> select_winner(Connection& connection, std::string_view device,
                                                  std::string_view problem) {
  DORAJIT_ASSIGN(
      auto winners,
      records_of(prepare_winners(connection, "WHERE device = ?1 AND problem = ?2", device, problem),
                 read_winner));
  if (!winners.empty()) return std::move(winners.front());
  const auto [first, last] = range_of_model(device);
  DORAJIT_ASSIGN(
      winners,
      records_of(prepare_winners(connection, "WHERE device BETWEEN ?1 AND ?2 AND problem = ?3",
                                 first, last, problem),
                 read_winner));
  std::erase_if(winners, [&](const Winner& one) { return !is_same_model(one.device, device); });
  const auto nearest = std::ranges::min_element(
      winners, {}, [&](const Winner& one) { return memory_apart(one.device, device); });
  return nearest == winners.end() ? std::nullopt : std::optional(std::move(*nearest));
}

SqliteResult<std::vector<Winner>> select_winners(Connection& connection) {
  return records_of(prepare_winners(connection, "ORDER BY device, problem"), read_winner);
}

SqliteResult<std::vector<Winner>> select_winners_of_variant(Connection& connection,
                                                            std::string_view variant) {
  // Problem names begin with "variant/"; '0' is the character after '/'.
  const std::string first = std::string(variant) + "/";
  const std::string last = std::string(variant) + "0";
  return records_of(
      prepare_winners(connection, "WHERE problem BETWEEN ?1 AND ?2 ORDER BY device, problem", first,
                      last),
      read_winner);
}

SqliteResult<std::vector<Trial>> select_trials(Connection& connection, std::string_view device,
                                               std::string_view problem) {
  return records_of(
      prepare_trials(connection, "WHERE device = ?1 AND problem = ?2 ORDER BY id", device, problem),
      read_trial);
}

SqliteResult<std::vector<Trial>> select_bad_trials(Connection& connection,
                                                   std::string_view device) {
  const auto [first, last] = range_of_model(device);
  auto trials = records_of(prepare_trials(connection,
                                          "WHERE device BETWEEN ?1 AND ?2 AND verdict NOT IN "
                                          "('ok', 'spills', 'failed_to_compile') ORDER BY id",
                                          first, last),
                           read_trial);
  if (!trials) return trials;
  std::erase_if(*trials, [&](const Trial& trial) {
    return !is_bad(trial.verdict) || !is_same_model(trial.device, device);
  });
  return trials;
}

SqliteResult<std::vector<Trial>> select_trials(Connection& connection,
                                               const std::function<void(std::int64_t)>& each) {
  return records_of(prepare_trials(connection, "ORDER BY id"), read_trial, each);
}

SqliteStatus read_trials_between(Connection& connection, std::int64_t first_id,
                                 std::int64_t last_id, std::vector<Trial>& rows) {
  DORAJIT_ASSIGN(auto statement,
                 prepare_trials(connection, "NOT INDEXED WHERE id BETWEEN ?1 AND ?2 ORDER BY id",
                                first_id, last_id));
  return append_records(statement, read_trial, rows);
}

SqliteStatus read_winners(Connection& connection, std::vector<Winner>& rows) {
  DORAJIT_ASSIGN(auto statement, prepare_winners(connection, "ORDER BY device, problem"));
  return append_records(statement, read_winner, rows);
}

#undef DORAJIT_TRIAL_COLUMNS
#undef DORAJIT_WINNER_COLUMNS

SqliteResult<MergeCounts> merge_trials(Connection& connection, std::span<const Trial> trials,
                                       const Progress& progress) {
  MergeCounts counts;
  std::set<std::pair<std::string, std::string>> touched;  // pairs of device and problem
  DORAJIT_TRY(insert_trials(connection, trials, [&](const Trial& trial, bool added) {
    ++(added ? counts.added : counts.known);
    if (added) touched.emplace(trial.device, trial.problem);
    report(progress, counts.added + counts.known, std::ssize(trials));
  }));
  for (const auto& [device, problem] : touched) {
    DORAJIT_ASSIGN(const auto changed, derive_winner(connection, device, problem));
    if (changed) ++counts.winners;
  }
  return counts;
}

SqliteResult<std::int64_t> derive_winners(Connection& connection) {
  DORAJIT_ASSIGN(const auto trials, select_trials(connection));
  DORAJIT_TRY(connection.execute("DELETE FROM winners"));
  const auto winners = choose_winners(trials);
  for (const Winner& winner : winners) {
    DORAJIT_TRY(put_winner(connection, winner));
  }
  return std::ssize(winners);
}

}  // namespace dorajit::cache
