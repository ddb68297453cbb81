// New databases in the place of none or of a damaged one.
#pragma once

#include <sys/types.h>

#include <string>

#include "cache/files/file_error.h"
#include "runtime/base/error.h"

namespace dorajit::cache {

// Makes a complete, empty database and publishes it as `path`. Another one published meanwhile is
// success, so this needs no lock. `mode` is the file's.
Status publish_new_database(const std::string& path, FilePlace place, mode_t mode);

// Whether a WAL lies at `path` whose database is gone. SQLite would apply it to a new database.
bool has_orphans(const std::string& path);

// Call only under the exclusive lock, as must be for what deletes files of a live name.
void remove_orphans(const std::string& path);

// Sets the damaged file at `path` aside as `path`.corrupt-<UTC time>, its WAL with it, and puts in
// its place a database of what could be salvaged. When no new database can be made, the old file
// stays where it is. Call only under the exclusive lock: nobody may have `path` open.
Status replace_damaged_database(const std::string& path, const std::string& reason, FilePlace place,
                                mode_t mode);

}  // namespace dorajit::cache
