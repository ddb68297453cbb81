// Part of step 2 of the schema: trials name the config that they were compared with.
#pragma once

#include "cache/sqlite_connection.h"

namespace dorajit::cache {

// Names the default config on the trials that a winner shows the run of, with a new checksum. The
// others keep none. To be run once, right after the column was added.
SqliteStatus backfill_defaults(Connection& connection);

}  // namespace dorajit::cache
