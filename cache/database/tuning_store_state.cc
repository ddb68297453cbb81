#include "cache/database/tuning_store_state.h"

#include <unistd.h>

#include <algorithm>
#include <format>
#include <iterator>
#include <ranges>
#include <set>

#include "cache/database/tuning_rows.h"
#include "cache/records/winner_choice.h"
#include "runtime/base/log.h"

namespace dorajit::cache {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// A lookup delays the caller's first launch, and a miss is cheap.
constexpr milliseconds kMaxReadWait{250};

// After a wait that timed out, the database is not tried again for this many times that wait.
constexpr int kRestingFactor = 10;

}  // namespace

void TuningMemory::record(std::span<const Trial> trials, const Winner& winner) {
  for (const Trial& trial : trials) add(trial);
  winners_.insert_or_assign({winner.device, winner.problem}, winner);
  unsaved_.push_back({{trials.begin(), trials.end()}, winner});
}

bool TuningMemory::add(const Trial& trial) {
  if (!trial_checksums_.insert(checksum(trial)).second) return false;
  trials_.push_back(trial);
  return true;
}

MergeCounts TuningMemory::merge(std::span<const Trial> trials) {
  MergeCounts counts;
  std::set<std::pair<std::string, std::string>> touched;
  for (const Trial& trial : trials) {
    const bool added = add(trial);
    ++(added ? counts.added : counts.known);
    if (added) touched.emplace(trial.device, trial.problem);
  }
  for (const auto& pair : touched) {
    std::vector<Trial> theirs;
    std::ranges::copy_if(trials_, std::back_inserter(theirs), [&](const Trial& trial) {
      return trial.device == pair.first && trial.problem == pair.second;
    });
    const auto winner = choose_winner(theirs);
    if (is_same(find_winner(pair.first, pair.second), winner)) continue;
    ++counts.winners;
    if (winner) {
      winners_.insert_or_assign(pair, *winner);
    } else {
      winners_.erase(pair);
    }
  }
  unsaved_.push_back({{trials.begin(), trials.end()}, std::nullopt});
  return counts;
}

void TuningMemory::drop_saved() {
  if (unsaved_.empty()) *this = {};
}

std::optional<Winner> TuningMemory::find_winner(std::string_view device,
                                                std::string_view problem) const {
  const auto found = winners_.find({std::string(device), std::string(problem)});
  if (found == winners_.end()) return std::nullopt;
  return found->second;
}

std::optional<Winner> TuningMemory::find_unsaved_winner(std::string_view device,
                                                        std::string_view problem) const {
  for (const Unsaved& unsaved : unsaved_ | std::views::reverse) {
    if (unsaved.winner && unsaved.winner->device == device && unsaved.winner->problem == problem) {
      return unsaved.winner;
    }
  }
  return std::nullopt;
}

std::vector<Winner> TuningMemory::winners() const {
  const auto values = winners_ | std::views::values;
  return {values.begin(), values.end()};
}

void TuningMemory::mark_saved(std::size_t count) {
  unsaved_.erase(unsaved_.begin(), std::next(unsaved_.begin(), static_cast<std::ptrdiff_t>(count)));
}

TuningStore::State::State(const std::string& cache_dir, const TuningStoreOptions& options)
    : process(::getpid()),
      database(cache_dir.empty()
                   ? nullptr
                   : std::make_unique<Database>(cache_dir, options.busy_wait, options.trust)),
      overlays(options.overlays, options.overlay_trust),
      cache_dir_(cache_dir),
      options_(options) {
  if (database) return;
  reason = options.without_folder;
  unread = Unavailable{.reason = reason};
}

std::unique_ptr<TuningStore::State> TuningStore::State::copy_for_child() {
  auto child = std::make_unique<State>(cache_dir_, options_);
  if (const std::unique_lock lock(mutex, std::try_to_lock); lock) {
    child->memory = memory;
    child->in_use = in_use;
    child->reason = reason;
    child->unread = unread;
  }
  return child;
}

milliseconds TuningStore::State::wait_of(Access access) const {
  return access == Access::kRead ? std::min(options_.busy_wait, kMaxReadWait) : options_.busy_wait;
}

bool TuningStore::State::with_database(Access access, const Use& use) {
  if (!database || is_resting(access)) return false;
  const Deadline deadline = steady_clock::now() + wait_of(access);
  for (bool repaired = false;;) {
    auto session = database->open(deadline);
    if (!session) {
      note_unavailable(access, session.error());
      return false;
    }
    const bool read_only = session->read_only;
    if (access == Access::kWrite && read_only) {
      note_available(access, read_only);
      return false;
    }
    const SqliteStatus status = use(session->connection, deadline);
    if (status) {
      note_available(access, read_only);
      return true;
    }
    if (!is_damage(status.error()) || read_only || repaired) {
      note_unavailable(access, {.reason = status.error().message, .busy = is_busy(status.error())});
      return false;
    }
    session = std::unexpected(Unavailable{});  // a repair needs the file unused
    repaired = true;
    if (auto result = database->repair(); !result) {
      note_unavailable(access, result.error());
      return false;
    }
  }
}

void TuningStore::State::connect() {
  with_database(Access::kRead, [](Connection&, Deadline) { return SqliteStatus(); });
}

bool TuningStore::State::write_unsaved() {
  std::vector<TuningMemory::Unsaved> unsaved;
  {
    const std::scoped_lock lock(mutex);
    unsaved = memory.unsaved();
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
  const std::scoped_lock lock(mutex);
  memory.mark_saved(unsaved.size());
  return true;
}

std::vector<Winner> TuningStore::State::with_remembered(std::vector<Winner> winners) {
  std::map<std::pair<std::string, std::string>, Winner> merged;
  const std::scoped_lock lock(mutex);
  for (Winner& winner : winners) {
    std::pair key(winner.device, winner.problem);
    merged.insert_or_assign(std::move(key), std::move(winner));
  }
  // The database may have a later winner of another process, except for unsaved results.
  for (Winner& winner : memory.winners()) {
    const bool unsaved = memory.find_unsaved_winner(winner.device, winner.problem).has_value();
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

void TuningStore::State::append_remembered(const std::function<bool(const Trial&)>& is_wanted,
                                           std::vector<Trial>& trials) const {
  std::set<std::int64_t> known;
  for (const Trial& trial : trials) known.insert(checksum(trial));
  for (const Trial& trial : memory.trials()) {
    if (is_wanted(trial) && known.insert(checksum(trial)).second) trials.push_back(trial);
  }
}

bool TuningStore::State::is_resting(Access access) {
  const std::scoped_lock lock(mutex);
  return options_.now() < resting_until_[std::to_underlying(access)];
}

void TuningStore::State::note_unavailable(Access access, const Unavailable& why) {
  // A read that timed out says nothing about writes, which wait longer.
  const bool is_missed_read = why.busy && access != Access::kWrite;
  {
    const std::scoped_lock lock(mutex);
    if (!is_missed_read) {
      in_use = false;
      reason = why.reason;
    }
    if (access != Access::kWrite) {
      // If the database does not exist, a read cannot have missed anything.
      unread = why.absent ? std::nullopt : std::optional(why);
    }
    if (why.busy) {
      resting_until_[std::to_underlying(access)] =
          options_.now() + kRestingFactor * wait_of(access);
    }
  }
  if (is_missed_read) {
    // When many processes start at once, some time out; the next source of the chain then answers.
    const LogLevel level = access == Access::kRead ? LogLevel::kDebug : LogLevel::kWarning;
    return log_once(level, database->path() + why.reason,
                    std::format("{} could not be read within {} ms, and its results are not used "
                                "this time: {}",
                                database->path(), wait_of(access).count(), why.reason));
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
    } else if (access == Access::kWrite || memory.unsaved().empty()) {
      // A successful read does not show that the disk has room for a write.
      reason.clear();
    }
  }
  if (access == Access::kWrite && read_only) {
    log_once(LogLevel::kWarning, why, "new tuning results stay in memory: " + why);
  }
}

}  // namespace dorajit::cache
