#include "cache/database/database.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <format>
#include <string_view>

#include "cache/database/replacement.h"
#include "cache/files/directories.h"

namespace dorajit::cache {
namespace {

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
    Inspection found =
        inspect(file, Connection::Mode::kReadWrite, depth, left(deadline), trust_.place);
    if (found.state == FileState::kBusy) return busy(std::move(found.reason));
    if (found.state == FileState::kNewer) return newer(found.reason, trust_.place);
    if (found.state == FileState::kUnusable) {
      return open_for_reading(std::move(use), folder, std::move(found.reason));
    }
    if (found.state == FileState::kUsable) {
      checked_.store(true);
      const bool read_only = found.connection->is_read_only();
      return Session{.use = std::move(use),
                     .folder = folder,
                     .lock = std::move(held),
                     .connection = *std::move(found.connection),
                     .read_only = read_only};
    }
    if (found.state == FileState::kAbsent && !has_orphans(file)) {
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
  Inspection found;
  for (const auto mode : {Connection::Mode::kReadOnly, Connection::Mode::kImmutable}) {
    found = inspect(file_in(folder), mode, CheckDepth::kMarks, milliseconds(0), trust_.place);
    if (found.state == FileState::kNewer) return newer(found.reason, trust_.place);
    if (found.state == FileState::kUsable) {
      return Session{.use = std::move(use),
                     .folder = std::move(folder),
                     .lock = std::move(held),
                     .connection = *std::move(found.connection),
                     .read_only = true};
    }
  }
  Unavailable why{.reason = std::move(why_not_writing),
                  .absent = found.state == FileState::kAbsent};
  if (!why.absent && found.reason != why.reason) {
    why.reason = std::format("{}, and {}", found.reason, why.reason);
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

  Inspection found =
      inspect(file, Connection::Mode::kReadWrite, CheckDepth::kWhole, repair_wait_, trust_.place);
  if (found.state == FileState::kAbsent) remove_orphans(file);
  if (found.state == FileState::kDamaged) {
    if (auto made = replace_damaged_database(file, found.reason, trust_.place, folder->file_mode());
        !made) {
      return unavailable(made.error().message);
    }
  }
  // For any other result, another process has fixed the file meanwhile, or the next open reports
  // the problem.
  return {};
}

}  // namespace dorajit::cache
