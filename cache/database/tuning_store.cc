#include "cache/database/tuning_store.h"

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <format>
#include <functional>
#include <map>
#include <mutex>
#include <ranges>
#include <set>
#include <type_traits>
#include <utility>

#include "cache/database/database.h"
#include "cache/database/tuning_rows.h"
#include "cache/records/winner_choice.h"
#include "runtime/base/hash.h"
#include "runtime/base/log.h"

namespace dorajit::cache {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// A lookup delays the caller's first launch, and a miss is cheap.
constexpr milliseconds kMaxReadWait{250};

bool is_of_another(const std::optional<Winner>& winner, const Environment* here) {
  return winner && here != nullptr && winner->environment != *here;
}

}  // namespace

// The locks, and the results that are kept beside the database. A forked child gets a new State.
class TuningStore::State {
 public:
  State(const std::string& cache_dir, const TuningStoreOptions& options)
      : database(cache_dir.empty()
                     ? nullptr
                     : std::make_unique<Database>(cache_dir, options.busy_wait, options.trust)),
        options_(options) {
    if (database) return;
    reason = options.without_folder;
    unread = Unavailable{.reason = reason};
  }

  // Returns the result of `select` on the database, or a value-initialised result if the database
  // cannot be used; the reason was stored and logged.
  template <class Select>
  auto read(LockWait lock_wait, Select select) {
    typename std::invoke_result_t<Select, Connection&>::value_type rows{};
    with_database(Access::kRead, lock_wait, [&](Connection& connection) {
      return select(connection).transform([&](auto found) { rows = std::move(found); });
    });
    return rows;
  }

  // Writes the unsaved results and then `change`, each in one transaction. Nothing if the database
  // was not changed.
  template <class Change>
  auto write(Change change) {
    const std::scoped_lock writer(writing_);
    std::optional<typename std::invoke_result_t<Change, Connection&>::value_type> done;
    const bool written = write_unsaved() && write_transaction([&](Connection& connection) {
                           return change(connection).transform([&](auto counts) {
                             done.emplace(std::move(counts));
                           });
                         });
    if (!written) done.reset();
    return done;
  }

  // Keeps the results, and writes them if the database can be written. Without a winner, those of
  // the problems are derived from all trials of the database.
  void keep(std::span<const Trial> trials, const Winner* winner) {
    const std::scoped_lock writer(writing_);
    {
      const std::scoped_lock lock(mutex);
      unsaved_trials_.insert(unsaved_trials_.end(), trials.begin(), trials.end());
      if (winner != nullptr) {
        unsaved_winners.insert_or_assign({winner->device, winner->problem}, *winner);
      } else {
        for (const Trial& one : trials) unsaved_winners.erase({one.device, one.problem});
      }
    }
    write_unsaved();
  }

  // The database's winners together with the unsaved ones, which replace them.
  std::vector<Winner> with_unsaved(const std::vector<Winner>& winners) {
    const std::scoped_lock lock(mutex);
    auto merged = unsaved_winners;
    for (const Winner& one : winners) merged.try_emplace({one.device, one.problem}, one);
    const auto values = merged | std::views::values;
    return {values.begin(), values.end()};
  }

  // Call while holding `mutex`.
  void append_unsaved(const std::function<bool(const Trial&)>& is_wanted,
                      std::vector<Trial>& trials) const {
    std::set<std::int64_t> known;
    for (const Trial& trial : trials) known.insert(checksum(trial));
    for (const Trial& trial : unsaved_trials_) {
      if (is_wanted(trial) && known.insert(checksum(trial)).second) trials.push_back(trial);
    }
  }

  const pid_t process = ::getpid();
  const std::unique_ptr<Database> database;  // null: memory only

  std::mutex mutex;  // guards all below
  // Results of this process that are not in a database yet; winners by device and problem. Changed
  // only while writing_ is held, too.
  std::map<std::pair<std::string, std::string>, Winner> unsaved_winners;
  bool in_use = false;  // the last attempt to open the database succeeded
  std::string reason;   // why the last write failed or the next one would; empty: it succeeded
  std::optional<Unavailable> unread;  // why the last read failed

 private:
  enum class Access { kRead, kWrite };
  using Use = std::function<SqliteStatus(Connection&)>;

  [[nodiscard]] milliseconds wait_of(LockWait lock_wait) const {
    return lock_wait == LockWait::kShort ? std::min(options_.busy_wait, kMaxReadWait)
                                         : options_.busy_wait;
  }

  // False if the database could not be used; the reason was stored and logged.
  bool with_database(Access access, LockWait lock_wait, const Use& use) {
    if (!database) return false;
    const Deadline deadline = steady_clock::now() + wait_of(lock_wait);
    for (bool repaired = false;;) {
      auto session = database->open(deadline);
      if (!session) return note_unavailable(access, lock_wait, session.error());
      const bool read_only = session->read_only;
      if (access == Access::kWrite && read_only) return note_available(access, read_only);
      const SqliteStatus status = use(session->connection);
      if (status) return note_available(access, read_only);
      if (!is_damage(status.error()) || read_only || repaired) {
        return note_unavailable(
            access, lock_wait, {.reason = status.error().message, .busy = is_busy(status.error())});
      }
      session = std::unexpected(Unavailable{});  // a repair needs the file unused
      repaired = true;
      if (auto result = database->repair(); !result) {
        return note_unavailable(access, lock_wait, result.error());
      }
    }
  }

  bool write_transaction(const Use& change) {
    return with_database(Access::kWrite, LockWait::kLong, [&](Connection& connection) {
      return write_in_transaction(connection, [&] { return change(connection); });
    });
  }

  // Call while holding writing_.
  bool write_unsaved() {
    if (unsaved_trials_.empty() && unsaved_winners.empty()) return true;
    const bool written = write_transaction([&](Connection& connection) -> SqliteStatus {
      DORAJIT_TRY(merge_trials(connection, unsaved_trials_));
      for (const auto& [key, winner] : unsaved_winners) DORAJIT_TRY(put_winner(connection, winner));
      return {};
    });
    if (!written) return false;
    const std::scoped_lock lock(mutex);
    unsaved_trials_.clear();
    unsaved_winners.clear();
    return true;
  }

  // Both return whether that access is possible.
  bool note_unavailable(Access access, LockWait lock_wait, const Unavailable& why) {
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
    const std::string& path = database->path();
    if (!is_missed_read) {
      log_once(
          LogLevel::kWarning, path + why.reason,
          std::format("tuning results stay in memory for now, not in {}: {}", path, why.reason));
      return false;
    }
    // When many processes start at once, some time out; the next source of the chain then answers.
    log_once(
        lock_wait == LockWait::kShort ? LogLevel::kDebug : LogLevel::kWarning, path + why.reason,
        std::format("{} could not be read within {} ms, and its results are not used this time: "
                    "{}",
                    path, wait_of(lock_wait).count(), why.reason));
    return false;
  }

  bool note_available(Access access, bool read_only) {
    std::string why;
    if (read_only) {
      why = std::format(
          "{} can be read but not written; free space on its disk, or {} to keep new results",
          database->path(), choice_of(options_.trust.place, "a writable folder"));
    }
    {
      const std::scoped_lock lock(mutex);
      in_use = true;
      unread.reset();
      const bool has_unsaved = !unsaved_trials_.empty() || !unsaved_winners.empty();
      // A successful read does not show that the disk has room for a write.
      if (read_only || access == Access::kWrite || !has_unsaved) reason = why;
    }
    if (access == Access::kRead || !read_only) return true;
    log_once(LogLevel::kWarning, why, "new tuning results stay in memory: " + why);
    return false;
  }

  const TuningStoreOptions options_;
  std::mutex writing_;  // one writer of this process at a time; taken before mutex
  std::vector<Trial> unsaved_trials_;
};

TuningStore::TuningStore(const std::string& cache_dir, const TuningStoreOptions& options)
    : cache_dir_(cache_dir),
      options_(options),
      pins_(cache_dir, options.trust, options.lock),
      overlays_(options.overlays, options.overlay_trust),
      state_(std::make_unique<State>(cache_dir, options).release()) {}

TuningStore::~TuningStore() {
  State* state = state_.load();
  // If it was inherited across a fork, threads that do not exist here may hold its locks.
  if (state->process == ::getpid()) delete state;
}

std::unique_ptr<TuningStore> TuningStore::open(const std::string& cache_dir,
                                               const TuningStoreOptions& options) {
  std::unique_ptr<TuningStore> store(new TuningStore(cache_dir, options));
  // So that the database is created and its condition is known.
  store->state().read(LockWait::kShort, [](Connection&) { return SqliteResult<bool>(true); });
  return store;
}

TuningStore::State& TuningStore::state() {
  State* current = state_.load();
  if (current->process == ::getpid()) return *current;
  // The parent's state is not destroyed: destroying locks that may be held is undefined.
  auto child = std::make_unique<State>(cache_dir_, options_);
  if (state_.compare_exchange_strong(current, child.get())) return *child.release();
  return *current;
}

TuningStore::History TuningStore::find_history(std::string_view device, std::string_view problem,
                                               LockWait lock_wait, const Environment* here) {
  State& own = state();
  History history = own.read(lock_wait, [&](Connection& connection) -> SqliteResult<History> {
    History found;
    DORAJIT_ASSIGN(found.winner, select_winner(connection, device, problem));
    if (is_of_another(found.winner, here)) {
      DORAJIT_ASSIGN(const auto trials, select_trials(connection, found.winner->device, problem));
      if (auto ours = choose_winner_in(*here, trials)) found.winner = std::move(ours);
    }
    DORAJIT_ASSIGN(found.bad_trials, select_bad_trials(connection, device));
    return found;
  });
  const std::scoped_lock lock(own.mutex);
  const auto unsaved = own.unsaved_winners.find({std::string(device), std::string(problem)});
  if (unsaved != own.unsaved_winners.end()) history.winner = unsaved->second;
  if (is_of_another(history.winner, here)) {
    std::vector<Trial> trials;
    own.append_unsaved(
        [&](const Trial& one) { return one.device == device && one.problem == problem; }, trials);
    if (auto ours = choose_winner_in(*here, trials)) history.winner = std::move(ours);
  }
  own.append_unsaved(
      [&](const Trial& trial) {
        return is_bad(trial.verdict) && is_same_model(trial.device, device);
      },
      history.bad_trials);
  return history;
}

std::optional<Winner> TuningStore::find_overlay_winner(std::string_view device,
                                                       std::string_view problem) {
  return overlays_.find_winner(device, problem);
}

void TuningStore::record(std::span<const Trial> trials, const Winner& winner) {
  state().keep(trials, &winner);
}

void TuningStore::merge(std::span<const Trial> trials) { state().keep(trials, nullptr); }

std::optional<MergeCounts> TuningStore::import_trials(std::span<const Trial> trials,
                                                      const Progress& progress) {
  return state().write(
      [&](Connection& connection) { return merge_trials(connection, trials, progress); });
}

std::optional<std::int64_t> TuningStore::rebuild_winners() { return state().write(derive_winners); }

Result<ForgottenCounts> TuningStore::forget(std::string_view device, std::string_view problem) {
  const auto counts = state().write(
      [&](Connection& connection) { return delete_records(connection, device, problem); });
  if (counts) return *counts;
  return fail(StatusCode::kIoError,
              std::format("cannot write the tuning database: {}", reason_not_persistent()));
}

std::vector<Winner> TuningStore::winners() {
  return state().with_unsaved(state().read(LockWait::kLong, select_winners));
}

std::vector<Winner> TuningStore::winners_of_variant(std::string_view variant) {
  State& own = state();
  auto winners = own.with_unsaved(own.read(LockWait::kShort, [&](Connection& connection) {
    return select_winners_of_variant(connection, variant);
  }));
  const std::string prefix = std::string(variant) + "/";
  std::erase_if(winners, [&](const Winner& w) { return !w.problem.starts_with(prefix); });
  for (Winner& winner : overlays_.winners_of_variant(variant)) {
    winners.push_back(std::move(winner));
  }
  return winners;
}

std::vector<Trial> TuningStore::trials(std::string_view device, std::string_view problem) {
  State& own = state();
  auto trials = own.read(LockWait::kLong, [&](Connection& connection) {
    return select_trials(connection, device, problem);
  });
  const std::scoped_lock lock(own.mutex);
  own.append_unsaved(
      [&](const Trial& one) {
        return device.empty() || (one.device == device && one.problem == problem);
      },
      trials);
  return trials;
}

std::string TuningStore::location() {
  State& own = state();
  const std::scoped_lock lock(own.mutex);
  return own.database && own.in_use ? own.database->path() : "memory";
}

std::string TuningStore::reason_not_persistent() {
  State& own = state();
  const std::scoped_lock lock(own.mutex);
  return own.reason;
}

Status TuningStore::readable() {
  State& own = state();
  const std::scoped_lock lock(own.mutex);
  if (!own.unread) return {};
  if (!own.database) {
    return fail(StatusCode::kIoError,
                std::format("there is no tuning database to read: {}", own.unread->reason));
  }
  return fail(StatusCode::kIoError,
              std::format("cannot read the tuning database {}: {}; {}", own.database->path(),
                          own.unread->reason,
                          own.unread->busy ? "try again when other processes have released it"
                                           : "`dorajit doctor` checks the cache folder"));
}

std::optional<TuningClaim> TuningStore::claim(std::string_view device, std::string_view problem,
                                              std::chrono::milliseconds wait) {
  if (cache_dir_.empty()) return TuningClaim();
  const std::string name =
      Hasher("claim").add("device", device).add("problem", problem).digest() + ".lock";
  using Lock = Result<std::optional<FileLock>>;
  Lock lock =
      TrustedDirectory::make(cache_dir_, options_.trust, {"locks"})
          .and_then([&](const TrustedDirectory& locks) -> Lock {
            // Any other user who can open the file could hold the lock for ever.
            DORAJIT_TRY(locks.check_file(name));
            return FileLock::acquire(locks.held_path() + "/" + name, FileLock::Mode::kExclusive,
                                     wait, FilePlace::kCacheFolder, locks.file_mode());
          });
  if (!lock) {
    log_once(LogLevel::kWarning, cache_dir_ + "/locks",
             std::format("several processes may tune the same problem at once: {}",
                         lock.error().message));
    return TuningClaim();
  }
  if (!*lock) return std::nullopt;
  return *std::move(lock);
}

}  // namespace dorajit::cache
