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
std::expected<Connection, Unfit> open_for_reading(const std::string& path) {
  std::error_code error;
  const bool has_wal = std::filesystem::exists(path + "-wal", error);
  const auto open = [&](Connection::Mode mode) {
    return inspect(path, mode, CheckDepth::kWhole, kWaitForOthers, FilePlace::kNamed);
  };
  auto found = open(has_wal ? Connection::Mode::kReadOnly : Connection::Mode::kTidyReading);
  if (found || found.error().state != FileState::kUnusable) return found;
  return open(Connection::Mode::kImmutable);
}

SqliteStatus read_rows(Connection& connection, TrialFile& file, const Progress& progress) {
  DORAJIT_ASSIGN(const auto trial_rows, connection.query_integer("SELECT count(*) FROM trials"));
  DORAJIT_ASSIGN(const auto winner_rows, connection.query_integer("SELECT count(*) FROM winners"));
  report(progress, 0, trial_rows);
  DORAJIT_ASSIGN(file.trials, select_trials(connection));
  report(progress, trial_rows, trial_rows);
  DORAJIT_ASSIGN(const auto winners, select_winners(connection));
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
  auto found = open_for_reading(path);
  if (!found && found.error().state != FileState::kDamaged) {
    return bad_file(path, found.error().reason);
  }
  if (!found) {
    file.damage = std::move(found).error().reason;
  } else if (const auto status = read_rows(*found, file, progress); !status) {
    if (!is_damage(status.error())) return bad_file(path, status.error().message);
    file.damage = status.error().message;
  }
  return file;
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
