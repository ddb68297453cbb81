// The live tuning.db of a cache folder: created, opened, repaired (docs/tuning_database.md).
#pragma once

#include <atomic>
#include <chrono>
#include <expected>
#include <optional>
#include <string>
#include <utility>

#include "cache/database/held_folder.h"
#include "cache/database/inspection.h"
#include "cache/database/sqlite_connection.h"
#include "cache/files/file_lock.h"
#include "runtime/base/fork_guard.h"

namespace dorajit::cache {

using Deadline = std::chrono::steady_clock::time_point;

// Why the database cannot be used just now.
struct Unavailable {
  std::string reason;
  bool busy = false;    // others were in the way for all of the wait
  bool absent = false;  // there is none, and none can be made
};

// An open database. Meant for one operation: while it lives, the file cannot be set aside.
class Session {
 public:
  Session(ForkGuard use, HeldFolder folder, std::optional<FileLock> lock, Connection connection,
          bool read_only)
      : use_(std::move(use)),
        folder_(std::move(folder)),
        lock_(std::move(lock)),
        connection_(std::move(connection)),
        read_only_(read_only) {}

  [[nodiscard]] Connection& connection() { return connection_; }
  [[nodiscard]] bool read_only() const { return read_only_; }

 private:
  // The connection closes first, and the lock and the folder go after it.
  ForkGuard use_;
  HeldFolder folder_;
  std::optional<FileLock> lock_;
  Connection connection_;
  bool read_only_;
};

// Thread-safe. Holds no handle, so it survives fork() and the removal of the folder.
class Database {
 public:
  // `repair_wait` bounds how long a repair waits for others to let go of the file. Only a folder
  // and files that `trust` lets pass are used.
  Database(std::string directory, std::chrono::milliseconds repair_wait, const Trust& trust = {});

  [[nodiscard]] const std::string& path() const { return path_; }

  // Opens the database, making or repairing it first where needed. Where the folder is
  // not writable, an existing database is opened for reading.
  std::expected<Session, Unavailable> open(Deadline deadline);

  // To be called without a session after one reported damage: under a lock that excludes every
  // session of every process, the file is checked again, and replaced if it is damaged.
  std::expected<void, Unavailable> repair();

 private:
  std::expected<Session, Unavailable> open_for_reading(ForkGuard use, HeldFolder folder,
                                                       std::string why_not_writing);
  std::expected<HeldFolder, Unavailable> hold_folder() const;

  const std::string directory_;
  const std::string path_;  // for people
  const Trust trust_;
  const std::chrono::milliseconds repair_wait_;
  std::atomic<bool> checked_{false};  // this process has seen the file whole once
};

}  // namespace dorajit::cache
