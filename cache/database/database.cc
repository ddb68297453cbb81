#include "cache/database/database.h"

#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <format>
#include <iterator>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "cache/database/tuning_rows.h"
#include "cache/files/directories.h"
#include "cache/records/tuning_records.h"
#include "runtime/base/log.h"

namespace dorajit::cache {
namespace {

namespace fs = std::filesystem;

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// The database may vanish between creating and opening it if someone clears the folder.
constexpr int kOpenAttempts = 3;

milliseconds left(Deadline deadline) {
  const auto rest = std::chrono::duration_cast<milliseconds>(deadline - steady_clock::now());
  return std::max(rest, milliseconds(0));
}

std::unexpected<Unavailable> unavailable(std::string reason) {
  return std::unexpected(Unavailable{std::move(reason), false});
}

std::unexpected<Unavailable> newer(std::string_view reason, FilePlace place) {
  return unavailable(std::format("{} or {}", reason, choice_of(place, "another folder")));
}

std::unexpected<Unavailable> busy(std::string reason) {
  return std::unexpected(Unavailable{std::move(reason), true});
}

constexpr std::array kFiles = {"tuning.db", "tuning.db-wal", "tuning.db-shm", "tuning.db-journal",
                               "tuning.db.lock"};

std::string file_in(const HeldFolder& folder) { return folder->held_path() + "/" + kFiles.front(); }
std::string lock_in(const HeldFolder& folder) { return folder->held_path() + "/" + kFiles.back(); }

constexpr std::array<const char*, 3> kCompanions = {"-shm", "-wal", "-journal"};

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

// The database in WAL mode, under its temporary name.
Result<AtomicFile> make_database(const std::string& path, const Salvaged& rows, FilePlace place,
                                 mode_t mode) {
  auto bytes = database_bytes(rows.trials, rows.winners);
  if (!bytes) {
    return fail(StatusCode::kIoError,
                std::format("cannot make {}: {}", shown_path(path), bytes.error().message));
  }
  // The versions of the file format for writing and reading: 2 is WAL
  // (https://sqlite.org/fileformat2.html#file_format_version_numbers).
  (*bytes)[18] = (*bytes)[19] = 2;
  DORAJIT_ASSIGN(AtomicFile file, AtomicFile::create(path, place, mode));
  DORAJIT_TRY(file.write(*bytes));
  return file;
}

std::string aside_name(const std::string& path) {
  const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
  const std::string name = std::format("{}.corrupt-{:%Y%m%dT%H%M%SZ}", path, now);
  std::string unique = name;
  std::error_code error;
  for (int i = 2; fs::exists(fs::symlink_status(unique, error)); ++i) {
    unique = std::format("{}-{}", name, i);
  }
  return unique;
}

// Creates a complete, empty database and publishes it as `path`. If another process publishes one
// first, that is success, so no lock is needed. `mode` is the file's mode.
Status publish_new_database(const std::string& path, FilePlace place, mode_t mode) {
  remove_stale_temporaries(parent_directory(path));
  return make_database(path, {}, place, mode)
      .and_then([](AtomicFile file) { return file.publish_if_absent(); })
      .transform([](bool /*published*/) {});
}

// Renames the damaged file at `path` to `path`.corrupt-<UTC time>, together with its WAL, and
// publishes a database of the salvaged rows in its place. If the old one cannot be read to its end
// or no new one can be created, the old file stays. Call only under the exclusive lock: nobody may
// have `path` open.
Status replace_damaged_database(const std::string& path, const std::string& reason, FilePlace place,
                                mode_t mode) {
  remove_stale_temporaries(parent_directory(path));
  Salvaged rows;
  if (const auto read = salvage(path, rows); !read && is_failure_to_read(read.error())) {
    return fail(StatusCode::kIoError, std::format("cannot salvage {}: {}; {}", shown_path(path),
                                                  read.error().message, remedy(EIO, place)));
  }
  DORAJIT_ASSIGN(AtomicFile file, make_database(path, rows, place, mode));

  // Reading the damaged file has created an empty WAL and its index.
  if (std::error_code error; fs::file_size(path + "-wal", error) == 0) {
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

}  // namespace

Database::Database(std::string directory, milliseconds repair_wait, const Trust& trust)
    : directory_(std::move(directory)),
      path_(directory_ + "/" + kFiles.front()),
      trust_(trust),
      repair_wait_(repair_wait) {}

std::expected<HeldFolder, Unavailable> Database::hold_folder() const {
  auto folder = TrustedDirectory::make(directory_, trust_);
  if (!folder) return unavailable(folder.error().message);
  for (const char* name : kFiles) {
    if (auto passed = folder->check_file(name); !passed) {
      return unavailable(passed.error().message);
    }
  }
  return hold(*std::move(folder));
}

std::expected<Session, Unavailable> Database::open(Deadline deadline) {
  if (fork_generation(Work::kSqlite) > 0) {
    return unavailable("this process was forked while another thread used the database");
  }
  for (int attempt = 0; attempt < kOpenAttempts; ++attempt) {
    ForkGuard use(Work::kSqlite);
    DORAJIT_ASSIGN(const HeldFolder folder, hold_folder());
    const std::string file = file_in(folder);
    if (!is_writable_directory(folder->held_path())) {
      std::string reason = file_error("write to", directory_, errno, trust_.place).message;
      return open_for_reading(std::move(use), folder, std::move(reason));
    }
    auto lock = FileLock::acquire(lock_in(folder), FileLock::Mode::kShared, left(deadline),
                                  trust_.place, folder->file_mode());
    if (lock && !*lock) return busy(path_ + ".lock was locked by another process for too long");
    // On a file system without locks, no process replaces the file either, so no lock is needed.
    std::optional<FileLock> held = lock ? *std::move(lock) : std::nullopt;

    const auto depth = checked_.load() ? CheckDepth::kMarks : CheckDepth::kStructure;
    auto found = inspect(file, Connection::Mode::kReadWrite, depth, left(deadline), trust_.place);
    if (found) {
      checked_.store(true);
      const bool read_only = found->is_read_only();
      return Session{.use = std::move(use),
                     .folder = folder,
                     .lock = std::move(held),
                     .connection = *std::move(found),
                     .read_only = read_only};
    }
    auto [state, reason] = std::move(found).error();
    if (state == FileState::kBusy) return busy(std::move(reason));
    if (state == FileState::kNewer) return newer(reason, trust_.place);
    if (state == FileState::kUnusable) {
      return open_for_reading(std::move(use), folder, std::move(reason));
    }
    if (state == FileState::kAbsent) {
      if (auto made = publish_new_database(file, trust_.place, folder->file_mode()); !made) {
        return std::unexpected(Unavailable{.reason = made.error().message, .absent = true});
      }
      continue;
    }
    held.reset();
    DORAJIT_TRY(repair());
  }
  return unavailable(path_ + " was deleted or damaged again after each repair");
}

std::expected<Session, Unavailable> Database::open_for_reading(ForkGuard use, HeldFolder folder,
                                                               std::string why_not_writing) {
  auto lock =
      FileLock::acquire(lock_in(folder), FileLock::Mode::kShared, milliseconds(0), trust_.place);
  std::optional<FileLock> held = lock ? *std::move(lock) : std::nullopt;
  // A WAL needs files beside the database. If they can be created, reading through them sees the
  // newest commits. If not, nobody can be writing, and the database file alone is complete.
  Unfit fault(FileState::kAbsent, {});
  for (const auto mode : {Connection::Mode::kReadOnly, Connection::Mode::kImmutable}) {
    auto found = inspect(file_in(folder), mode, CheckDepth::kMarks, milliseconds(0), trust_.place);
    if (found) {
      return Session{.use = std::move(use),
                     .folder = std::move(folder),
                     .lock = std::move(held),
                     .connection = *std::move(found),
                     .read_only = true};
    }
    fault = std::move(found).error();
    if (fault.state == FileState::kNewer) return newer(fault.reason, trust_.place);
  }
  Unavailable why{.reason = std::move(why_not_writing),
                  .absent = fault.state == FileState::kAbsent};
  if (!why.absent && fault.reason != why.reason) {
    why.reason = std::format("{}, and {}", fault.reason, why.reason);
  }
  return std::unexpected(std::move(why));
}

std::expected<void, Unavailable> Database::repair() {
  const ForkGuard use(Work::kSqlite);
  DORAJIT_ASSIGN(const HeldFolder folder, hold_folder());
  const std::string file = file_in(folder);
  auto lock = FileLock::acquire(lock_in(folder), FileLock::Mode::kExclusive, repair_wait_,
                                trust_.place, folder->file_mode());
  // Without locks, no process can know that the file is unused.
  if (!lock) return unavailable(lock.error().message);
  if (!*lock) return busy(path_ + ".lock was locked by another process for too long");

  const auto found =
      inspect(file, Connection::Mode::kReadWrite, CheckDepth::kWhole, repair_wait_, trust_.place);
  if (!found && found.error().state == FileState::kDamaged) {
    if (auto made =
            replace_damaged_database(file, found.error().reason, trust_.place, folder->file_mode());
        !made) {
      return unavailable(made.error().message);
    }
  }
  // For any other result, another process has fixed the file meanwhile, or the next open reports
  // the problem.
  return {};
}

}  // namespace dorajit::cache
