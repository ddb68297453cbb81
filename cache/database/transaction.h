// Write transactions that wait for other writers for a bounded time.
#pragma once

#include <chrono>
#include <functional>

#include "cache/database/sqlite_connection.h"

namespace dorajit::cache {

// Runs `body` between BEGIN IMMEDIATE and COMMIT. While other connections write, retries with
// growing, jittered pauses until `deadline`, then returns the busy error. A failed transaction
// leaves no changes. `body` may run more than once.
SqliteStatus write_in_transaction(Connection& connection,
                                  std::chrono::steady_clock::time_point deadline,
                                  const std::function<SqliteStatus()>& body);

}  // namespace dorajit::cache
