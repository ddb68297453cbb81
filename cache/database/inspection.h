// Checks whether a file is a tuning database that this dorajit can use.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "cache/database/sqlite_connection.h"
#include "cache/files/file_error.h"

namespace dorajit::cache {

enum class FileState {
  kUsable,
  kAbsent,
  kDamaged,   // not a database, another program's, or not completely readable by SQLite
  kNewer,     // of a later schema: must not be modified
  kBusy,      // other processes held it for the entire wait
  kUnusable,  // the file system or SQLite refused access, or reading failed: says nothing about it
};

enum class CheckDepth {
  kMarks,      // application id and version: one page
  kStructure,  // every page, if the file is small enough for a fast check
  kWhole,      // every page and index, regardless of time
};

struct Inspection {
  FileState state = FileState::kUnusable;
  std::string reason;                    // set unless kUsable or kAbsent
  std::optional<Connection> connection;  // set if kUsable
};

Inspection inspect(const std::string& path, Connection::Mode mode, CheckDepth depth,
                   std::chrono::milliseconds wait, FilePlace place);

}  // namespace dorajit::cache
