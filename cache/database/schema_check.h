// Whether a database has the tables and indices of its schema, and nothing else.
#pragma once

#include <string>

#include "cache/database/sqlite_connection.h"

namespace dorajit::cache {

// What is not as the schema has it; empty: all is. A view, a trigger or a table
// that computes its columns may make any later query run for ever, so no other query comes before
// this.
SqliteResult<std::string> difference_from_schema(Connection& connection);

// Whether there is a table of that name, defined as in the schema.
SqliteResult<bool> is_table_of_schema(Connection& connection, const std::string& name);

}  // namespace dorajit::cache
