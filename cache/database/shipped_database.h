// Read-only databases that come with an installation (docs/tuning_database.md).
#pragma once

#include <span>
#include <string>

#include "cache/records/tuning_records.h"
#include "runtime/base/error.h"

namespace dorajit::cache {

// Atomically replaces the file at `path` with a database of the trials, without duplicates, and
// their winners. With one version of SQLite, the same trials give the same bytes. Nobody may have
// the previous database open for writing.
Status write_shipped_database(const std::string& path, std::span<const Trial> trials);

}  // namespace dorajit::cache
