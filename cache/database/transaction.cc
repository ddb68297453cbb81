#include "cache/database/transaction.h"

#include <algorithm>
#include <random>
#include <thread>

namespace dorajit::cache {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// SQLite's own wait polls without jitter and fails at once if it detects a deadlock. It is
// therefore short, and the loop below does the long wait.
constexpr milliseconds kSqliteWait{50};
constexpr milliseconds kFirstPause{1};
constexpr milliseconds kMaxPause{200};

SqliteStatus try_once(Connection& connection, const std::function<SqliteStatus()>& body) {
  auto status = connection.execute("BEGIN IMMEDIATE");
  if (status) status = body();
  if (status) status = connection.execute("COMMIT");
  // Some errors roll back automatically.
  if (!status && connection.in_transaction()) (void)connection.execute("ROLLBACK");
  return status;
}

}  // namespace

SqliteStatus write_in_transaction(Connection& connection, steady_clock::time_point deadline,
                                  const std::function<SqliteStatus()>& body) {
  connection.set_busy_timeout(kSqliteWait);
  std::minstd_rand random(std::random_device{}());
  for (milliseconds pause = kFirstPause;; pause = std::min(2 * pause, kMaxPause)) {
    auto status = try_once(connection, body);
    if (status || !is_busy(status.error())) return status;
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - steady_clock::now());
    if (left <= milliseconds(0)) return status;
    std::uniform_int_distribution<milliseconds::rep> jitter(pause.count() / 2 + 1, pause.count());
    std::this_thread::sleep_for(std::min(left, milliseconds(jitter(random))));
  }
}

}  // namespace dorajit::cache
