#include "cache/fork_guard.h"

#include <pthread.h>

#include <atomic>
#include <utility>

namespace dorajit::cache {
namespace {

std::atomic<int> uses{0};
std::atomic<bool> lost{false};

void in_child() {
  // The forking thread itself is in no operation, so every use is another thread's, now gone.
  if (uses.exchange(0) > 0) lost.store(true);
}

}  // namespace

SqliteUse::SqliteUse() {
  static const int registered = ::pthread_atfork(nullptr, nullptr, in_child);
  (void)registered;
  uses.fetch_add(1);
}

SqliteUse::SqliteUse(SqliteUse&& other) noexcept : counted_(std::exchange(other.counted_, false)) {}

SqliteUse::~SqliteUse() {
  if (counted_) uses.fetch_sub(1);
}

bool sqlite_is_lost_to_fork() { return lost.load(); }

}  // namespace dorajit::cache
