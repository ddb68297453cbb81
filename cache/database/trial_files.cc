#include "cache/database/trial_files.h"

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <format>
#include <string_view>
#include <system_error>
#include <utility>

#include "cache/database/schema.h"
#include "cache/database/tuning_rows.h"
#include "cache/files/shared_file.h"
#include "cache/records/tuning_records.h"
#include "cache/records/winner_choice.h"
#include "runtime/base/files.h"
#include "runtime/base/fork_guard.h"

namespace dorajit::cache {
namespace {

constexpr std::string_view kSqliteMark("SQLite format 3\0", 16);
constexpr std::size_t kMaxTrialFileBytes = std::size_t{1} << 30;
constexpr std::chrono::seconds kWaitForOthers{5};

std::unexpected<Error> bad_file(const std::string& path, std::string_view what) {
  return fail(StatusCode::kIoError, std::format("cannot use {}: {}", path, what));
}

// Through the WAL if it can be read, so that the newest commits are included.
Inspection inspect_for_reading(const std::string& path) {
  std::error_code error;
  const bool has_wal = std::filesystem::exists(path + "-wal", error);
  Inspection found =
      inspect(path, has_wal ? Connection::Mode::kReadOnly : Connection::Mode::kTidyReading,
              CheckDepth::kWhole, kWaitForOthers, FilePlace::kNamed);
  if (found.state != FileState::kUnusable) return found;
  return inspect(path, Connection::Mode::kImmutable, CheckDepth::kWhole, kWaitForOthers,
                 FilePlace::kNamed);
}

SqliteStatus read_rows(Connection& connection, TrialFile& file, const Progress& progress) {
  DORAJIT_ASSIGN(const auto trial_rows, connection.query_integer("SELECT count(*) FROM trials"));
  DORAJIT_ASSIGN(const auto winner_rows, connection.query_integer("SELECT count(*) FROM winners"));
  DORAJIT_ASSIGN(auto trials, select_trials(connection, [&](std::int64_t done) {
                   report(progress, done, trial_rows);
                 }));
  DORAJIT_ASSIGN(const auto winners, select_winners(connection));
  file.trials = std::move(trials);
  std::erase_if(file.trials, [latest = latest_plausible_time()](const Trial& trial) {
    return trial.created_unix_s > latest;
  });
  file.winners = std::ssize(winners);
  file.bad_count = trial_rows - std::ssize(file.trials) + winner_rows - file.winners;
  return {};
}

Result<TrialFile> read_database(const std::string& path, const Progress& progress) {
  const ForkGuard use(Work::kSqlite);
  TrialFile file;
  file.kind = TrialFileKind::kDatabase;
  Inspection found = inspect_for_reading(path);
  if (found.state == FileState::kDamaged) {
    file.damage = found.reason;
    return file;
  }
  if (found.state != FileState::kUsable) return bad_file(path, found.reason);
  if (const auto status = read_rows(*found.connection, file, progress); !status) {
    if (!is_damage(status.error())) return bad_file(path, status.error().message);
    file.damage = status.error().message;
  }
  return file;
}

// A database of the records, made in memory.
SqliteResult<std::string> database_bytes(std::span<const Trial> trials,
                                         std::span<const Winner> winners) {
  DORAJIT_ASSIGN(auto connection, Connection::open(":memory:", Connection::Mode::kReadWrite));
  DORAJIT_TRY(build_schema(connection));
  DORAJIT_TRY(insert_records(connection, trials, winners));
  return connection.serialize();
}

}  // namespace

Result<TrialFile> read_trial_file(const std::string& path, const Progress& progress) {
  const auto start = read_file_start(path, kSqliteMark.size());
  if (start && *start == kSqliteMark) return read_database(path, progress);
  const auto text = read_regular_file(path, kMaxTrialFileBytes);
  if (!text) return bad_file(path, text.error());
  auto parsed = parse_lines(*text, progress);
  if (!parsed) return bad_file(path, parsed.error().message);
  TrialFile file;
  file.trials = std::move(parsed->trials);
  file.bad_count = parsed->bad_count;
  file.bad = std::move(parsed->bad);
  file.damage = std::move(parsed->damage);
  return file;
}

Result<TrialText> write_trial_file(const std::string& path, std::span<const Trial> trials,
                                   const Progress& progress) {
  TrialText text = to_lines(trials, progress);
  DORAJIT_TRY(write_output_file(path, text.lines));
  return text;
}

Status write_shipped_database(const std::string& path, std::span<const Trial> trials) {
  std::vector<Trial> unique;
  for (const Trial* trial : each_once_in_order(trials)) unique.push_back(*trial);
  const auto bytes = database_bytes(unique, choose_winners(unique));
  if (!bytes) {
    return fail(StatusCode::kIoError,
                std::format("cannot make {}: {}", path, bytes.error().message));
  }
  return write_output_file(path, *bytes);
}

}  // namespace dorajit::cache
