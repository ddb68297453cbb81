#include "cache/database.h"

#include <algorithm>
#include <cerrno>
#include <format>

#include "cache/directories.h"
#include "cache/file_error.h"
#include "cache/replacement.h"
#include "cache/schema.h"
#include "cache/transaction.h"

namespace dorajit::cache {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Making a database and finding it gone again may happen when someone clears the folder.
constexpr int kOpenAttempts = 3;

milliseconds left(Deadline deadline) {
  const auto rest = std::chrono::duration_cast<milliseconds>(deadline - steady_clock::now());
  return std::max(rest, milliseconds(0));
}

std::unexpected<Unavailable> unavailable(std::string reason) {
  return std::unexpected(Unavailable{std::move(reason), false});
}

std::unexpected<Unavailable> busy(std::string reason) {
  return std::unexpected(Unavailable{std::move(reason), true});
}

SqliteStatus bring_up_to_date(Connection& connection, std::int64_t version, Deadline deadline) {
  if (version == schema_version() || connection.is_read_only()) return {};
  return write_in_transaction(connection, deadline,
                              [&] { return migrate(connection, migrations()); });
}

}  // namespace

Database::Database(std::string directory, milliseconds repair_wait)
    : directory_(std::move(directory)),
      path_(directory_ + "/tuning.db"),
      lock_path_(directory_ + "/tuning.db.lock"),
      repair_wait_(repair_wait) {}

std::expected<Session, Unavailable> Database::open(Deadline deadline) {
  if (losses_to_fork(Work::kSqlite) > 0) {
    return unavailable("this process was forked while another thread used the database");
  }
  if (auto made = make_private_directories(directory_); !made) {
    return unavailable(made.error().message);
  }
  if (!is_writable_directory(directory_)) {
    return open_for_reading(file_error("write to", directory_, errno).message);
  }
  for (int attempt = 0; attempt < kOpenAttempts; ++attempt) {
    WorkInProgress use(Work::kSqlite);
    auto lock = FileLock::acquire(lock_path_, FileLock::Mode::kShared, left(deadline));
    if (lock && !*lock) return busy(lock_path_ + " was held for too long");
    // Without locks on this file system nobody sets the file aside either.
    std::optional<FileLock> held;
    if (lock) held = *std::move(lock);

    const auto depth = checked_.load() ? CheckDepth::kMarks : CheckDepth::kStructure;
    Inspection found = inspect(path_, Connection::Mode::kReadWrite, depth, left(deadline));
    if (found.state == FileState::kBusy) return busy(std::move(found.reason));
    if (found.state == FileState::kNewer) return unavailable(std::move(found.reason));
    if (found.state == FileState::kUnusable) return open_for_reading(std::move(found.reason));
    if (found.state == FileState::kUsable) {
      checked_.store(true);
      Connection& connection = *found.connection;
      if (auto status = bring_up_to_date(connection, found.version, deadline); !status) {
        return std::unexpected(Unavailable{status.error().message, is_busy(status.error())});
      }
      const bool read_only = connection.is_read_only();
      return Session(std::move(use), std::move(held), std::move(connection), read_only);
    }
    if (found.state == FileState::kAbsent && !has_orphans(path_)) {
      if (auto made = publish_new_database(path_); !made) return unavailable(made.error().message);
      continue;
    }
    held.reset();
    if (auto repaired = repair(); !repaired) {
      return std::unexpected(std::move(repaired).error());
    }
  }
  return unavailable(path_ + " keeps vanishing or being damaged");
}

std::expected<Session, Unavailable> Database::open_for_reading(std::string why_not_writing) {
  WorkInProgress use(Work::kSqlite);
  std::optional<FileLock> held;
  if (auto lock = FileLock::acquire(lock_path_, FileLock::Mode::kShared, milliseconds(0)); lock) {
    held = *std::move(lock);
  }
  // A WAL needs files beside the database. Where they can be had, reading through them sees the
  // newest commits; where not, nobody can be writing, and the file alone serves.
  for (const auto mode : {Connection::Mode::kReadOnly, Connection::Mode::kImmutable}) {
    Inspection found = inspect(path_, mode, CheckDepth::kMarks, milliseconds(0));
    if (found.state == FileState::kNewer) return unavailable(std::move(found.reason));
    if (found.state == FileState::kUsable) {
      return Session(std::move(use), std::move(held), *std::move(found.connection), true);
    }
  }
  return unavailable(std::move(why_not_writing));
}

std::expected<void, Unavailable> Database::repair() {
  const WorkInProgress use(Work::kSqlite);
  auto lock = FileLock::acquire(lock_path_, FileLock::Mode::kExclusive, repair_wait_);
  // Without locks nobody can know that the file is unused.
  if (!lock) return unavailable(lock.error().message);
  if (!*lock) return busy(lock_path_ + " was held for too long");

  Inspection found = inspect(path_, Connection::Mode::kReadWrite, CheckDepth::kWhole, repair_wait_);
  if (found.state == FileState::kAbsent) remove_orphans(path_);
  if (found.state == FileState::kDamaged) {
    if (auto made = replace_damaged_database(path_, found.reason); !made) {
      return unavailable(made.error().message);
    }
  }
  // Anything else another process has settled meanwhile, or the next open will name.
  return {};
}

}  // namespace dorajit::cache
