#include "cache/database/replacement.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <format>
#include <string_view>
#include <vector>

#include "cache/database/schema.h"
#include "cache/database/sqlite_connection.h"
#include "cache/database/tuning_rows.h"
#include "cache/files/directories.h"
#include "cache/files/shared_file.h"
#include "cache/records/trial_lines.h"
#include "cache/records/winner_choice.h"
#include "runtime/base/log.h"

namespace dorajit::cache {
namespace {

constexpr std::array<const char*, 3> kCompanions = {"-shm", "-wal", "-journal"};

// Only this process knows the new file, so no wait is expected.
constexpr std::chrono::seconds kWaitForNewFile{1};

struct Salvaged {
  std::vector<Trial> trials;
  std::vector<Winner> winners;
};

// About the rows of one b-tree page: a damaged page then costs only a few such ranges.
constexpr std::int64_t kIdsPerRange = 16;

// How many times as many ids as rows there may be, because `dorajit forget` deletes rows.
constexpr std::int64_t kRoomForGaps = 4;

// Smaller than the smallest row with its cell.
constexpr std::int64_t kMinRowBytes = 64;

// The file's size bounds the ids: few rows are ever deleted, and a row takes several times the
// minimum size, which leaves room for gaps. The ids in the rows cannot be used: a forged id may be
// any number.
std::int64_t largest_possible_id(const std::string& path) {
  return kRoomForGaps * bytes_of_database(path) / kMinRowBytes;
}

// Each range is a new search from the root, so damage in one range does not hide the others.
SqliteStatus read_range_by_range(Connection& connection, const std::string& path,
                                 std::vector<Trial>& trials) {
  const std::int64_t last_id = largest_possible_id(path);
  for (std::int64_t id = 1; id <= last_id; id += kIdsPerRange) {
    std::vector<Trial> range;
    if (read_trials_between(connection, id, id + kIdsPerRange - 1, range)) {
      std::ranges::move(range, std::back_inserter(trials));
      continue;
    }
    for (std::int64_t one = id; one < id + kIdsPerRange; ++one) {
      const auto status = read_trials_between(connection, one, one, trials);
      if (!status && is_failure_to_read(status.error())) return status;
    }
  }
  return {};
}

// Adds every trial and winner that is readable and has a valid checksum. After damage that hides
// all others, there are no more.
SqliteStatus salvage(const std::string& path, Salvaged& rows) {
  DORAJIT_ASSIGN(auto connection, Connection::open(path, Connection::Mode::kReadWrite));
  connection.forbid_checkpoint_on_close();
  // A database of another program may have tables of the same names.
  DORAJIT_ASSIGN(const auto application, connection.query_integer("PRAGMA application_id"));
  if (application != kApplicationId) return {};
  connection.limit_steps_by_size_of(path);
  // A table with another definition may return rows without end.
  DORAJIT_ASSIGN(const bool has_trials, is_table_of_schema(connection, "trials"));
  if (has_trials) DORAJIT_TRY(read_range_by_range(connection, path, rows.trials));
  DORAJIT_ASSIGN(const bool has_winners, is_table_of_schema(connection, "winners"));
  if (has_winners) DORAJIT_TRY(read_winners(connection, rows.winners));
  return {};
}

template <class T>
Status to_status(std::string_view action, const std::string& path, const SqliteResult<T>& result,
                 FilePlace place) {
  if (result) return {};
  const int error_number = result.error().code == SQLITE_FULL ? ENOSPC : EIO;
  return fail(StatusCode::kIoError,
              std::format("cannot {} {}: {}; {}", action, shown_path(path), result.error().message,
                          remedy(error_number, place)));
}

SqliteStatus insert(Connection& connection, const Salvaged& rows) {
  if (rows.trials.empty() && rows.winners.empty()) return {};
  const auto deadline = std::chrono::steady_clock::now() + kWaitForNewFile;
  return write_in_transaction(connection, deadline, [&]() -> SqliteStatus {
    DORAJIT_TRY(insert_trials(connection, rows.trials));
    for (const Winner& winner : rows.winners) {
      DORAJIT_TRY(put_winner(connection, winner));
    }
    return {};
  });
}

SqliteStatus fill(const std::string& path, const Salvaged& rows) {
  DORAJIT_ASSIGN(auto connection, Connection::open(path, Connection::Mode::kReadWrite));
  DORAJIT_TRY(build_schema(connection));
  DORAJIT_TRY(insert(connection, rows));
  return begin_wal(connection);
}

// A database of the rows, made in memory.
SqliteResult<std::string> database_bytes(const Salvaged& rows) {
  DORAJIT_ASSIGN(auto connection, Connection::open(":memory:", Connection::Mode::kReadWrite));
  DORAJIT_TRY(build_schema(connection));
  DORAJIT_TRY(insert(connection, rows));
  return connection.serialize();
}

// The database under its temporary name, closed, with no companion files.
Result<AtomicFile> make_database(const std::string& path, const Salvaged& rows, FilePlace place,
                                 mode_t mode) {
  DORAJIT_ASSIGN(AtomicFile file, AtomicFile::create(path, place, mode));
  const SqliteStatus filled = fill(file.temporary_path(), rows);
  for (const char* companion : kCompanions) {
    ::unlink((file.temporary_path() + companion).c_str());
  }
  DORAJIT_TRY(to_status("make", path, filled, place));
  return file;
}

bool exists(const std::string& path) {
  struct stat info{};
  return ::lstat(path.c_str(), &info) == 0;
}

bool is_empty(const std::string& path) {
  struct stat info{};
  return ::lstat(path.c_str(), &info) == 0 && info.st_size == 0;
}

std::string aside_name(const std::string& path) {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y%m%dT%H%M%SZ", &utc);
  const std::string name = std::format("{}.corrupt-{}", path, text.data());
  std::string unique = name;
  for (int i = 2; exists(unique); ++i) unique = std::format("{}-{}", name, i);
  return unique;
}

}  // namespace

bool has_orphans(const std::string& path) {
  return !exists(path) && std::ranges::any_of(kCompanions, [&](const char* companion) {
    return exists(path + companion);
  });
}

void remove_orphans(const std::string& path) {
  if (exists(path)) return;
  for (const char* companion : kCompanions) ::unlink((path + companion).c_str());
}

Status publish_new_database(const std::string& path, FilePlace place, mode_t mode) {
  remove_stale_temporaries(parent_directory(path));
  DORAJIT_ASSIGN(AtomicFile file, make_database(path, {}, place, mode));
  DORAJIT_ASSIGN(const bool published, file.publish_if_absent());
  (void)published;
  return {};
}

Status write_shipped_database(const std::string& path, std::span<const Trial> trials) {
  Salvaged rows;
  for (const Trial* trial : each_once_in_order(trials)) rows.trials.push_back(*trial);
  rows.winners = choose_winners(rows.trials);
  const auto bytes = database_bytes(rows);
  DORAJIT_TRY(to_status("make", path, bytes, FilePlace::kNamed));
  return write_output_file(path, *bytes);
}

Status replace_damaged_database(const std::string& path, const std::string& reason, FilePlace place,
                                mode_t mode) {
  remove_stale_temporaries(parent_directory(path));
  Salvaged rows;
  if (const auto read = salvage(path, rows); !read && is_failure_to_read(read.error())) {
    return to_status("salvage", path, read, place);
  }
  DORAJIT_ASSIGN(AtomicFile file, make_database(path, rows, place, mode));

  // Reading the damaged file has created an empty WAL and its index.
  if (is_empty(path + "-wal")) {
    ::unlink((path + "-wal").c_str());
    ::unlink((path + "-shm").c_str());
  }
  const std::string aside = aside_name(path);
  // The database is moved last. If the process is killed before that, the next process finds the
  // damage again; if killed after it, the next process finds neither a file nor a WAL that it could
  // take for its own.
  for (const char* companion : kCompanions) {
    if (::rename((path + companion).c_str(), (aside + companion).c_str()) != 0 && errno != ENOENT) {
      return std::unexpected(file_error("set aside", path + companion, errno, place));
    }
  }
  if (::rename(path.c_str(), aside.c_str()) != 0) {
    return std::unexpected(file_error("set aside", path, errno, place));
  }
  DORAJIT_ASSIGN(const bool published, file.publish_if_absent());
  const std::string kept = shown_path(aside);
  log_once(LogLevel::kWarning, kept,
           std::format("{} was damaged ({}); it was renamed to {}; {} trials and {} winners were "
                       "salvaged from it",
                       shown_path(path), reason, kept, published ? rows.trials.size() : 0,
                       published ? rows.winners.size() : 0));
  return {};
}

}  // namespace dorajit::cache
