#include "cache/database/tuning_store_state.h"

#include <unistd.h>

#include <algorithm>
#include <format>
#include <ranges>
#include <set>

#include "cache/database/tuning_rows.h"
#include "runtime/base/log.h"

namespace dorajit::cache {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// A lookup delays the caller's first launch, and a miss is cheap.
constexpr milliseconds kMaxReadWait{250};

}  // namespace

void UnsavedResults::add(std::span<const Trial> added, const Winner& winner) {
  trials.insert(trials.end(), added.begin(), added.end());
  winners.insert_or_assign({winner.device, winner.problem}, winner);
}

void UnsavedResults::add(std::span<const Trial> added) {
  trials.insert(trials.end(), added.begin(), added.end());
  for (const Trial& trial : added) winners.erase({trial.device, trial.problem});
}

TuningStore::State::State(const std::string& cache_dir, const TuningStoreOptions& options)
    : process(::getpid()),
      database(cache_dir.empty()
                   ? nullptr
                   : std::make_unique<Database>(cache_dir, options.busy_wait, options.trust)),
      overlays(options.overlays, options.overlay_trust),
      options_(options) {
  if (database) return;
  reason = options.without_folder;
  unread = Unavailable{.reason = reason};
}

milliseconds TuningStore::State::wait_of(LockWait lock_wait) const {
  return lock_wait == LockWait::kShort ? std::min(options_.busy_wait, kMaxReadWait)
                                       : options_.busy_wait;
}

bool TuningStore::State::with_database(Access access, LockWait lock_wait, const Use& use) {
  if (!database) return false;
  const Deadline deadline = steady_clock::now() + wait_of(lock_wait);
  for (bool repaired = false;;) {
    auto session = database->open(deadline);
    if (!session) {
      note_unavailable(access, lock_wait, session.error());
      return false;
    }
    const bool read_only = session->read_only;
    if (access == Access::kWrite && read_only) {
      note_available(access, read_only);
      return false;
    }
    const SqliteStatus status = use(session->connection);
    if (status) {
      note_available(access, read_only);
      return true;
    }
    if (!is_damage(status.error()) || read_only || repaired) {
      note_unavailable(access, lock_wait,
                       {.reason = status.error().message, .busy = is_busy(status.error())});
      return false;
    }
    session = std::unexpected(Unavailable{});  // a repair needs the file unused
    repaired = true;
    if (auto result = database->repair(); !result) {
      note_unavailable(access, lock_wait, result.error());
      return false;
    }
  }
}

void TuningStore::State::connect() {
  with_database(Access::kRead, LockWait::kShort, [](Connection&) { return SqliteStatus(); });
}

bool TuningStore::State::write_transaction(const std::function<SqliteStatus(Connection&)>& change) {
  return with_database(Access::kWrite, LockWait::kLong, [&](Connection& connection) {
    return write_in_transaction(connection, [&] { return change(connection); });
  });
}

bool TuningStore::State::write_unsaved() {
  if (unsaved.trials.empty() && unsaved.winners.empty()) return true;
  const bool written = write_transaction([&](Connection& connection) -> SqliteStatus {
    DORAJIT_TRY(merge_trials(connection, unsaved.trials));
    for (const auto& [key, winner] : unsaved.winners) DORAJIT_TRY(put_winner(connection, winner));
    return {};
  });
  if (!written) return false;
  const std::scoped_lock lock(mutex);
  unsaved = {};
  return true;
}

std::vector<Winner> TuningStore::State::with_unsaved(std::vector<Winner> winners) {
  const std::scoped_lock lock(mutex);
  auto merged = unsaved.winners;
  for (Winner& winner : winners) {
    std::pair key(winner.device, winner.problem);
    merged.try_emplace(std::move(key), std::move(winner));
  }
  const auto values = merged | std::views::values;
  return {values.begin(), values.end()};
}

void TuningStore::State::append_unsaved(const std::function<bool(const Trial&)>& is_wanted,
                                        std::vector<Trial>& trials) const {
  std::set<std::int64_t> known;
  for (const Trial& trial : trials) known.insert(checksum(trial));
  for (const Trial& trial : unsaved.trials) {
    if (is_wanted(trial) && known.insert(checksum(trial)).second) trials.push_back(trial);
  }
}

void TuningStore::State::note_unavailable(Access access, LockWait lock_wait,
                                          const Unavailable& why) {
  // A read that timed out says nothing about writes, which wait longer.
  const bool is_missed_read = why.busy && access == Access::kRead;
  {
    const std::scoped_lock lock(mutex);
    if (!is_missed_read) {
      in_use = false;
      reason = why.reason;
    }
    if (access == Access::kRead) {
      // If the database does not exist, a read cannot have missed anything.
      unread = why.absent ? std::nullopt : std::optional(why);
    }
  }
  if (is_missed_read) {
    // When many processes start at once, some time out; the next source of the chain then answers.
    const LogLevel level = lock_wait == LockWait::kShort ? LogLevel::kDebug : LogLevel::kWarning;
    return log_once(level, database->path() + why.reason,
                    std::format("{} could not be read within {} ms, and its results are not used "
                                "this time: {}",
                                database->path(), wait_of(lock_wait).count(), why.reason));
  }
  log_once(LogLevel::kWarning, database->path() + why.reason,
           std::format("tuning results stay in memory for now, not in {}: {}", database->path(),
                       why.reason));
}

void TuningStore::State::note_available(Access access, bool read_only) {
  std::string why;
  {
    const std::scoped_lock lock(mutex);
    in_use = true;
    unread.reset();
    if (read_only) {
      why = std::format(
          "{} can be read but not written; free space on its disk, or {} to keep new results",
          database->path(), choice_of(options_.trust.place, "a writable folder"));
      reason = why;
    } else if (access == Access::kWrite || (unsaved.trials.empty() && unsaved.winners.empty())) {
      // A successful read does not show that the disk has room for a write.
      reason.clear();
    }
  }
  if (access == Access::kWrite && read_only) {
    log_once(LogLevel::kWarning, why, "new tuning results stay in memory: " + why);
  }
}

}  // namespace dorajit::cache
