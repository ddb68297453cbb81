// Databases that come with an installation and are only read (docs/tuning_database.md).
#pragma once

#include <span>
#include <string>

#include "cache/records/tuning_records.h"
#include "runtime/base/error.h"

namespace dorajit::cache {

// Puts a database with the trials, each once, and their winners in the place of what is at `path`,
// whole or not at all. The same trials are the same bytes, by the same version of SQLite. Nobody
// may have the database that was there open for writing.
Status write_shipped_database(const std::string& path, std::span<const Trial> trials);

}  // namespace dorajit::cache
