// Whether a file is a tuning database that this dorajit can use.
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
  kDamaged,   // no database, another program's, or one that SQLite cannot read whole
  kNewer,     // of a later schema: not to be touched
  kBusy,      // others held it for all of the wait
  kUnusable,  // the file system or SQLite refuses
};

enum class CheckDepth {
  kMarks,      // application id and version: one page
  kStructure,  // every page, if the file is small enough for that to go unnoticed
  kWhole,      // every page and index, whatever it takes
};

struct Inspection {
  FileState state = FileState::kUnusable;
  std::string reason;                    // for all but kUsable and kAbsent
  std::optional<Connection> connection;  // for kUsable
};

Inspection inspect(const std::string& path, Connection::Mode mode, CheckDepth depth,
                   std::chrono::milliseconds wait, FilePlace place);

}  // namespace dorajit::cache
