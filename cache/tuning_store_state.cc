#include "cache/tuning_store_state.h"

#include <unistd.h>

#include <algorithm>
#include <format>
#include <iterator>
#include <set>
#include <utility>

#include "cache/derivation.h"
#include "cache/transaction.h"
#include "cache/tuning_rows.h"
#include "runtime/base/log.h"

namespace dorajit::cache {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// A lookup stands between a caller and its first launch, and a miss costs little.
constexpr milliseconds kLongestReadWait{250};

// After a wait in vain, this many waits pass before the database is tried again.
constexpr int kRestingFactor = 10;

// Those of `more` that are not in `trials`.
void append_unknown(std::span<const Trial> more, std::vector<Trial>& trials) {
  std::set<std::int64_t> known;
  for (const Trial& trial : trials) known.insert(checksum(trial));
  for (const Trial& trial : more) {
    if (known.insert(checksum(trial)).second) trials.push_back(trial);
  }
}

}  // namespace

TuningStore::State::State(const std::string& cache_dir, const TuningStoreOptions& options)
    : cache_dir_(cache_dir),
      options_(options),
      process_(::getpid()),
      database_(cache_dir.empty()
                    ? nullptr
                    : std::make_unique<Database>(cache_dir, options.busy_wait, options.trust)),
      overlays_(options.overlays, options.overlay_trust) {
  if (!database_) reason_ = options.without_folder;
}

std::unique_ptr<TuningStore::State> TuningStore::State::copy_for_child() {
  auto child = std::make_unique<State>(cache_dir_, options_);
  if (const std::unique_lock lock(mutex_, std::try_to_lock); lock) {
    child->memory_ = memory_;
    child->in_use_ = in_use_;
    child->reason_ = reason_;
  }
  return child;
}

milliseconds TuningStore::State::wait_of(Access access) const {
  return access == Access::kRead ? std::min(options_.busy_wait, kLongestReadWait)
                                 : options_.busy_wait;
}

bool TuningStore::State::with_database(Access access, const Use& use) {
  if (!database_ || is_resting(access)) return false;
  const Deadline deadline = steady_clock::now() + wait_of(access);
  for (bool repaired = false;;) {
    auto session = database_->open(deadline);
    if (!session) {
      note_unavailable(access, session.error().reason, session.error().busy);
      return false;
    }
    const bool read_only = session->read_only();
    if (access == Access::kWrite && read_only) {
      note_available(access, read_only);
      return false;
    }
    const SqliteStatus status = use(session->connection(), deadline);
    if (status) {
      note_available(access, read_only);
      return true;
    }
    if (!is_damage(status.error()) || read_only || repaired) {
      note_unavailable(access, status.error().message, is_busy(status.error()));
      return false;
    }
    session = std::unexpected(Unavailable{});  // repairing needs the file unused
    repaired = true;
    if (auto result = database_->repair(); !result) {
      note_unavailable(access, result.error().reason, result.error().busy);
      return false;
    }
  }
}

void TuningStore::State::connect() {
  with_database(Access::kRead, [](Connection&, Deadline) { return SqliteStatus(); });
}

std::optional<Winner> TuningStore::State::find_winner(std::string_view device,
                                                      std::string_view problem, Patience patience) {
  {
    const std::scoped_lock lock(mutex_);
    if (auto unsaved = memory_.find_unsaved_winner(device, problem)) return unsaved;
  }
  std::optional<Winner> winner;
  with_database(patience == Patience::kShort ? Access::kRead : Access::kPatientRead,
                [&](Connection& connection, Deadline) {
                  return select_winner(connection, device, problem).transform([&](auto found) {
                    winner = std::move(found);
                  });
                });
  if (winner) return winner;
  const std::scoped_lock lock(mutex_);
  return memory_.find_winner(device, problem);
}

void TuningStore::State::record(std::span<const Trial> trials, const Winner& winner) {
  {
    const std::scoped_lock lock(mutex_);
    memory_.record(trials, winner);
  }
  const std::scoped_lock writer(writing_);
  write_unsaved();
}

MergeCounts TuningStore::State::merge(std::span<const Trial> trials) {
  const std::scoped_lock writer(writing_);
  MergeCounts counts;
  const bool merged = write_unsaved() &&
                      with_database(Access::kWrite, [&](Connection& connection, Deadline deadline) {
                        return write_in_transaction(connection, deadline, [&]() -> SqliteStatus {
                          return merge_trials(connection, trials).transform([&](MergeCounts found) {
                            counts = found;
                          });
                        });
                      });
  if (merged) return counts;
  const std::scoped_lock lock(mutex_);
  return memory_.merge(trials);
}

std::optional<std::int64_t> TuningStore::State::rebuild_winners() {
  const std::scoped_lock writer(writing_);
  std::int64_t count = 0;
  const bool rebuilt =
      write_unsaved() &&
      with_database(Access::kWrite, [&](Connection& connection, Deadline deadline) {
        return write_in_transaction(connection, deadline, [&]() -> SqliteStatus {
          return derive_winners(connection).transform([&](std::int64_t found) { count = found; });
        });
      });
  if (!rebuilt) return std::nullopt;
  const std::scoped_lock lock(mutex_);
  memory_.rebuild_winners();
  return count;
}

bool TuningStore::State::write_unsaved() {
  std::vector<TuningMemory::Unsaved> unsaved;
  {
    const std::scoped_lock lock(mutex_);
    unsaved = memory_.unsaved();
  }
  if (unsaved.empty()) return true;
  const bool written =
      with_database(Access::kWrite, [&](Connection& connection, Deadline deadline) {
        return write_in_transaction(connection, deadline, [&]() -> SqliteStatus {
          for (const auto& [trials, winner] : unsaved) {
            if (!winner) {
              DORAJIT_TRY(merge_trials(connection, trials));
              continue;
            }
            DORAJIT_TRY(insert_trials(connection, trials));
            DORAJIT_TRY(put_winner(connection, *winner));
          }
          return {};
        });
      });
  if (!written) return false;
  const std::scoped_lock lock(mutex_);
  memory_.mark_saved(unsaved.size());
  return true;
}

std::vector<Winner> TuningStore::State::winners() {
  std::vector<Winner> winners;
  with_database(Access::kPatientRead, [&](Connection& connection, Deadline) {
    return select_winners(connection).transform([&](auto found) { winners = std::move(found); });
  });
  return with_remembered(std::move(winners));
}

std::vector<Winner> TuningStore::State::winners_of_variant(std::string_view variant) {
  std::vector<Winner> winners;
  with_database(Access::kRead, [&](Connection& connection, Deadline) {
    return select_winners_of_variant(connection, variant).transform([&](auto found) {
      winners = std::move(found);
    });
  });
  winners = with_remembered(std::move(winners));
  const std::string prefix = std::string(variant) + "/";
  std::erase_if(winners, [&](const Winner& w) { return !w.problem.starts_with(prefix); });
  return winners;
}

std::vector<Winner> TuningStore::State::with_remembered(std::vector<Winner> winners) {
  std::map<std::pair<std::string, std::string>, Winner> merged;
  const std::scoped_lock lock(mutex_);
  for (Winner& winner : winners) {
    std::pair key(winner.device, winner.problem);
    merged.insert_or_assign(std::move(key), std::move(winner));
  }
  // The database may hold a later winner of another process, but not of what is unsaved.
  for (Winner& winner : memory_.winners()) {
    const bool unsaved = memory_.find_unsaved_winner(winner.device, winner.problem).has_value();
    std::pair key(winner.device, winner.problem);
    if (unsaved) {
      merged.insert_or_assign(std::move(key), std::move(winner));
    } else {
      merged.try_emplace(std::move(key), std::move(winner));
    }
  }
  std::vector<Winner> all;
  for (auto& [key, winner] : merged) all.push_back(std::move(winner));
  return all;
}

std::vector<Trial> TuningStore::State::trials(std::string_view device, std::string_view problem) {
  std::vector<Trial> trials;
  with_database(Access::kPatientRead, [&](Connection& connection, Deadline) {
    return select_trials(connection, device, problem).transform([&](auto found) {
      trials = std::move(found);
    });
  });
  const std::scoped_lock lock(mutex_);
  std::vector<Trial> remembered;
  std::ranges::copy_if(memory_.trials(), std::back_inserter(remembered), [&](const Trial& trial) {
    return trial.device == device && trial.problem == problem;
  });
  append_unknown(remembered, trials);
  return trials;
}

std::vector<Trial> TuningStore::State::trials() {
  std::vector<Trial> trials;
  with_database(Access::kPatientRead, [&](Connection& connection, Deadline) {
    return select_trials(connection).transform([&](auto found) { trials = std::move(found); });
  });
  const std::scoped_lock lock(mutex_);
  append_unknown(memory_.trials(), trials);
  return trials;
}

std::vector<Trial> TuningStore::State::bad_trials(std::string_view device) {
  std::vector<Trial> trials;
  with_database(Access::kRead, [&](Connection& connection, Deadline) {
    return select_bad_trials(connection, device).transform([&](auto found) {
      trials = std::move(found);
    });
  });
  const std::scoped_lock lock(mutex_);
  std::vector<Trial> remembered;
  std::ranges::copy_if(memory_.trials(), std::back_inserter(remembered), [&](const Trial& trial) {
    return trial.device == device && is_bad(trial.verdict);
  });
  append_unknown(remembered, trials);
  return trials;
}

std::int64_t TuningStore::State::trial_count() {
  std::int64_t count = 0;
  const bool counted = with_database(Access::kPatientRead, [&](Connection& connection, Deadline) {
    return count_trials(connection).transform([&](std::int64_t found) { count = found; });
  });
  const std::scoped_lock lock(mutex_);
  if (!counted) return std::ssize(memory_.trials());
  std::set<std::int64_t> unsaved;
  for (const auto& record : memory_.unsaved()) {
    for (const Trial& trial : record.trials) unsaved.insert(checksum(trial));
  }
  return count + std::ssize(unsaved);
}

std::string TuningStore::State::location() {
  const std::scoped_lock lock(mutex_);
  return database_ && in_use_ ? database_->path() : "memory";
}

std::string TuningStore::State::reason_not_persistent() {
  const std::scoped_lock lock(mutex_);
  return reason_;
}

bool TuningStore::State::is_resting(Access access) {
  const std::scoped_lock lock(mutex_);
  return steady_clock::now() < resting_until_[std::to_underlying(access)];
}

void TuningStore::State::note_unavailable(Access access, const std::string& reason, bool busy) {
  // It says nothing of what is written, which waits longer.
  const bool is_missed_read = busy && access != Access::kWrite;
  {
    const std::scoped_lock lock(mutex_);
    if (!is_missed_read) {
      in_use_ = false;
      reason_ = reason;
    }
    if (busy) {
      resting_until_[std::to_underlying(access)] =
          steady_clock::now() + kRestingFactor * wait_of(access);
    }
  }
  if (is_missed_read) {
    // Where many processes start at once, some wait in vain; then the next rung answers.
    const LogLevel level = access == Access::kRead ? LogLevel::kDebug : LogLevel::kWarning;
    return log_once(level, database_->path() + reason,
                    std::format("{} could not be read within {} ms, and what it has is passed over "
                                "this time: {}",
                                database_->path(), wait_of(access).count(), reason));
  }
  log_once(LogLevel::kWarning, database_->path() + reason,
           std::format("tuning results stay in memory for now, not in {}: {}", database_->path(),
                       reason));
}

void TuningStore::State::note_available(Access access, bool read_only) {
  std::string reason;
  {
    const std::scoped_lock lock(mutex_);
    in_use_ = true;
    if (read_only) {
      reason = std::format(
          "{} can be read but not written; free space on its disk, or set DORAJIT_CACHE_DIR to a "
          "writable folder to keep new results",
          database_->path());
      reason_ = reason;
    } else if (access == Access::kWrite || memory_.unsaved().empty()) {
      // A read says nothing about a disk that was too full to write to.
      reason_.clear();
    }
  }
  if (access == Access::kWrite && read_only) {
    log_once(LogLevel::kWarning, reason, "new tuning results stay in memory: " + reason);
  }
}

}  // namespace dorajit::cache
