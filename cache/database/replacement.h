// Creates new databases, and replaces damaged ones.
#pragma once

#include <sys/types.h>

#include <span>
#include <string>

#include "cache/files/directories.h"
#include "cache/records/tuning_records.h"
#include "runtime/base/error.h"

namespace dorajit::cache {

// Creates a complete, empty database and publishes it as `path`. If another process publishes one
// first, that is success, so no lock is needed. `mode` is the file's mode.
Status publish_new_database(const std::string& path, FilePlace place, mode_t mode);

// Atomically replaces the file at `path` with a read-only database, as installations ship them, of
// the trials, without duplicates, and their winners. With one version of SQLite, the same trials
// give the same bytes. Nobody may have the previous database open for writing.
Status write_shipped_database(const std::string& path, std::span<const Trial> trials);

// Whether a WAL exists at `path` without its database. SQLite would apply it to a new database.
bool has_orphans(const std::string& path);

// Call only under the exclusive lock, as for every deletion of a live file name.
void remove_orphans(const std::string& path);

// Renames the damaged file at `path` to `path`.corrupt-<UTC time>, together with its WAL, and
// publishes a database of the salvaged rows in its place. If the old one cannot be read to its end
// or no new one can be created, the old file stays. Call only under the exclusive lock: nobody may
// have `path` open.
Status replace_damaged_database(const std::string& path, const std::string& reason, FilePlace place,
                                mode_t mode);

}  // namespace dorajit::cache
