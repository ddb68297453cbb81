// Checks that a database has exactly the tables and indices of its schema.
#pragma once

#include <string>

#include "cache/database/sqlite_connection.h"

namespace dorajit::cache {

// The first difference from the schema; empty if there is none. Call it before any other query: a
// view, a trigger or a table with computed columns may make any query run for ever.
SqliteResult<std::string> difference_from_schema(Connection& connection);

// Whether there is a table of that name with the definition of the schema.
SqliteResult<bool> is_table_of_schema(Connection& connection, const std::string& name);

}  // namespace dorajit::cache
