// The live tuning.db of a cache folder: created, opened, repaired (docs/tuning_database.md).
#pragma once

#include <atomic>
#include <chrono>
#include <expected>
#include <optional>
#include <string>

#include "cache/database/schema.h"
#include "cache/database/sqlite_connection.h"
#include "cache/files/shared_file.h"
#include "runtime/base/fork_guard.h"

namespace dorajit::cache {

using Deadline = std::chrono::steady_clock::time_point;

// Why the database cannot be used now.
struct Unavailable {
  std::string reason;
  bool busy = false;    // other processes held it for the entire wait
  bool absent = false;  // it does not exist and cannot be created
};

// An open database, for one operation: during its lifetime the file cannot be replaced. Destroyed
// in reverse order: the connection first, then the lock and the folder.
struct Session {
  ForkGuard use;
  HeldFolder folder;
  std::optional<FileLock> lock;
  Connection connection;
  bool read_only = false;
};

// Thread-safe. Holds no open handle, so it survives fork() and deletion of the folder.
class Database {
 public:
  // `repair_wait` limits how long a repair waits for other processes to release the file. Only a
  // folder and files that `trust` accepts are used.
  Database(std::string directory, std::chrono::milliseconds repair_wait, const Trust& trust = {});

  [[nodiscard]] const std::string& path() const { return path_; }

  // Opens the database; creates or repairs it first if needed. Statements wait for other processes
  // for as long as was left until the deadline. If the folder is not writable, an
  // existing database is opened read-only.
  std::expected<Session, Unavailable> open(Deadline deadline);

  // Call without an open session after a session reported damage. Checks the file again under a
  // lock that excludes every session of every process, and replaces it if it is damaged.
  std::expected<void, Unavailable> repair();

 private:
  std::expected<Session, Unavailable> open_for_reading(ForkGuard use, HeldFolder folder,
                                                       std::string why_not_writing);
  std::expected<HeldFolder, Unavailable> hold_folder() const;

  const std::string directory_;
  const std::string path_;  // for messages
  const Trust trust_;
  const std::chrono::milliseconds repair_wait_;
  std::atomic<bool> checked_{false};  // this process has checked the entire file once
};

}  // namespace dorajit::cache
