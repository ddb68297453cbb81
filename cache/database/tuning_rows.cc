#include "cache/database/tuning_rows.h"

#include <algorithm>
#include <cmath>
#include <format>
#include <limits>
#include <set>
#include <type_traits>
#include <utility>

#include "cache/database/schema.h"
#include "cache/records/tuning_records.h"
#include "cache/records/winner_choice.h"
#include "kernel_templates/config.h"

namespace dorajit::cache {
namespace {

#define DORAJIT_COMMON_COLUMNS \
  "device, problem, driver, policy, space, tuner, templates, config, default_config, "
#define DORAJIT_TRIAL_COLUMNS                                                               \
  DORAJIT_COMMON_COLUMNS                                                                    \
  "verdict, median_ns, mad_ns, log_ratio, log_ratio_error, samples, created_unix_s, host, " \
  "checksum"
#define DORAJIT_WINNER_COLUMNS \
  DORAJIT_COMMON_COLUMNS "median_ns, default_median_ns, created_unix_s, checksum"

constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();  // stored as NULL

void read(const Statement& row, Trial& trial) {
  trial.verdict = *parse_verdict(row.text(9));
  trial.median_ns = row.real(10);
  trial.mad_ns = row.real(11);
  if (const double log_ratio = row.real(12); !std::isnan(log_ratio)) {
    trial.comparison = {.log_ratio = log_ratio, .standard_error = row.real(13)};
  }
  trial.samples = static_cast<int>(row.integer(14));
  trial.created_unix_s = row.integer(15);
  trial.host = row.text(16);
}

void read(const Statement& row, Winner& winner) {
  winner.median_ns = row.real(9);
  winner.default_median_ns = row.real(10);
  winner.created_unix_s = row.integer(11);
}

template <class Record>
constexpr bool kIsTrial = std::is_same_v<Record, Trial>;

// Nothing for an invalid row.
template <class Record>
std::optional<Record> read_record(const Statement& row) {
  const auto config = kernels::parse_config(row.text(7));
  const auto default_config = kernels::parse_config(row.text(8));
  if (!config || !default_config) return std::nullopt;
  if (kIsTrial<Record> && !parse_verdict(row.text(9))) return std::nullopt;
  Record record{.problem = row.text(1),
                .device = row.text(0),
                .environment = {row.text(2), row.text(3), row.text(4), row.text(5), row.text(6)},
                .config = *config,
                .default_config = *default_config};
  read(row, record);
  const std::int64_t sum = row.integer(kIsTrial<Record> ? 17 : 12);
  if (checksum(record) != sum || !fault_of(record).empty()) return std::nullopt;
  return record;
}

// Appends the valid records of the rows that `rest` selects, even if an error ends the walk.
template <class Record, class... Values>
SqliteStatus append(Connection& connection, std::vector<Record>& records, std::string_view rest,
                    const Values&... values) {
  constexpr std::string_view kSelect = kIsTrial<Record>
                                           ? "SELECT " DORAJIT_TRIAL_COLUMNS " FROM trials "
                                           : "SELECT " DORAJIT_WINNER_COLUMNS " FROM winners ";
  DORAJIT_ASSIGN(auto statement, connection.prepare(std::format("{}{}", kSelect, rest), values...));
  return for_each_row(statement, [&](const Statement& row) {
    if (auto record = read_record<Record>(row)) records.push_back(*std::move(record));
  });
}

template <class Record, class... Values>
SqliteResult<std::vector<Record>> select(Connection& connection, std::string_view rest,
                                         const Values&... values) {
  std::vector<Record> records;
  DORAJIT_TRY(append(connection, records, rest, values...));
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

// Calls `each` with every trial and whether it was added; one that exists already is not added.
template <class Each>
SqliteStatus insert_trials(Connection& connection, std::span<const Trial> trials, Each each) {
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
    each(trial, added);
  }
  return {};
}

}  // namespace

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

SqliteResult<std::string> database_bytes(std::span<const Trial> trials,
                                         std::span<const Winner> winners) {
  DORAJIT_ASSIGN(auto connection, Connection::open(":memory:", Connection::Mode::kReadWrite));
  DORAJIT_TRY(build_schema(connection));
  DORAJIT_TRY(insert_trials(connection, trials, [](const Trial&, bool /*added*/) {}));
  for (const Winner& winner : winners) DORAJIT_TRY(put_winner(connection, winner));
  return connection.serialize();
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
  DORAJIT_ASSIGN(auto winners,
                 select<Winner>(connection, "WHERE device = ?1 AND problem = ?2", device, problem));
  if (!winners.empty()) return std::move(winners.front());
  const auto [first, last] = range_of_model(device);
  DORAJIT_ASSIGN(
      winners, select<Winner>(connection, "WHERE device BETWEEN ?1 AND ?2 AND problem = ?3", first,
                              last, problem));
  std::erase_if(winners, [&](const Winner& one) { return !is_same_model(one.device, device); });
  const auto nearest = std::ranges::min_element(
      winners, {}, [&](const Winner& one) { return memory_apart(one.device, device); });
  return nearest == winners.end() ? std::nullopt : std::optional(std::move(*nearest));
}

SqliteResult<std::vector<Winner>> select_winners(Connection& connection) {
  return select<Winner>(connection, "ORDER BY device, problem");
}

SqliteResult<std::vector<Winner>> select_winners_of_variant(Connection& connection,
                                                            std::string_view variant) {
  // Problem names begin with "variant/"; '0' is the character after '/'.
  const std::string first = std::string(variant) + "/";
  const std::string last = std::string(variant) + "0";
  return select<Winner>(connection, "WHERE problem BETWEEN ?1 AND ?2 ORDER BY device, problem",
                        first, last);
}

SqliteResult<std::vector<Trial>> select_trials(Connection& connection, std::string_view device,
                                               std::string_view problem) {
  if (device.empty()) return select<Trial>(connection, "ORDER BY id");
  return select<Trial>(connection, "WHERE device = ?1 AND problem = ?2 ORDER BY id", device,
                       problem);
}

SqliteResult<std::vector<Trial>> select_bad_trials(Connection& connection,
                                                   std::string_view device) {
  const auto [first, last] = range_of_model(device);
  auto trials = select<Trial>(connection,
                              "WHERE device BETWEEN ?1 AND ?2 AND verdict NOT IN "
                              "('ok', 'spills', 'failed_to_compile') ORDER BY id",
                              first, last);
  if (!trials) return trials;
  std::erase_if(*trials, [&](const Trial& trial) {
    return !is_bad(trial.verdict) || !is_same_model(trial.device, device);
  });
  return trials;
}

SqliteStatus read_trials_between(Connection& connection, std::int64_t first_id,
                                 std::int64_t last_id, std::vector<Trial>& rows) {
  return append(connection, rows, "NOT INDEXED WHERE id BETWEEN ?1 AND ?2 ORDER BY id", first_id,
                last_id);
}

SqliteStatus read_winners(Connection& connection, std::vector<Winner>& rows) {
  return append(connection, rows, "ORDER BY device, problem");
}

#undef DORAJIT_COMMON_COLUMNS
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
