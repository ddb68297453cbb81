#include "cache/database/tuning_store.h"

#include <unistd.h>

#include <format>
#include <utility>

#include "cache/database/tuning_rows.h"
#include "cache/database/tuning_store_state.h"
#include "cache/records/tuning_records.h"
#include "cache/records/winner_choice.h"
#include "runtime/base/hash.h"
#include "runtime/base/log.h"

namespace dorajit::cache {
namespace {

bool is_of_another(const std::optional<Winner>& winner, const Environment* here) {
  return winner && here != nullptr && winner->environment != *here;
}

}  // namespace

TuningStore::TuningStore(const std::string& cache_dir, const TuningStoreOptions& options)
    : cache_dir_(cache_dir),
      options_(options),
      pins_(cache_dir, options.trust, options.lock),
      state_(std::make_unique<State>(cache_dir, options).release()) {}

TuningStore::~TuningStore() {
  State* state = state_.load();
  // If it was inherited across a fork, threads that do not exist here may hold its locks.
  if (state->process == ::getpid()) delete state;
}

std::unique_ptr<TuningStore> TuningStore::open(const std::string& cache_dir,
                                               const TuningStoreOptions& options) {
  std::unique_ptr<TuningStore> store(new TuningStore(cache_dir, options));
  store->state().connect();
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
  const auto unsaved = own.unsaved.winners.find({std::string(device), std::string(problem)});
  if (unsaved != own.unsaved.winners.end()) history.winner = unsaved->second;
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
  return state().overlays.find_winner(device, problem);
}

void TuningStore::record(std::span<const Trial> trials, const Winner& winner) {
  State& own = state();
  const std::scoped_lock writer(own.writing);
  {
    const std::scoped_lock lock(own.mutex);
    own.unsaved.add(trials, winner);
  }
  own.write_unsaved();
}

void TuningStore::merge(std::span<const Trial> trials) {
  State& own = state();
  const std::scoped_lock writer(own.writing);
  {
    const std::scoped_lock lock(own.mutex);
    own.unsaved.add(trials);
  }
  own.write_unsaved();
}

std::optional<MergeCounts> TuningStore::import_trials(std::span<const Trial> trials,
                                                      const Progress& progress) {
  State& own = state();
  const std::scoped_lock writer(own.writing);
  return own.write(
      [&](Connection& connection) { return merge_trials(connection, trials, progress); });
}

std::optional<std::int64_t> TuningStore::rebuild_winners() {
  State& own = state();
  const std::scoped_lock writer(own.writing);
  return own.write(derive_winners);
}

Result<ForgottenCounts> TuningStore::forget(std::string_view device, std::string_view problem) {
  State& own = state();
  const std::scoped_lock writer(own.writing);
  const auto counts = own.write(
      [&](Connection& connection) { return delete_records(connection, device, problem); });
  if (counts) return *counts;
  return fail(StatusCode::kIoError,
              std::format("cannot write the tuning database: {}", reason_not_persistent()));
}

std::vector<Winner> TuningStore::winners() {
  State& own = state();
  return own.with_unsaved(own.read(LockWait::kLong, select_winners));
}

std::vector<Winner> TuningStore::winners_of_variant(std::string_view variant) {
  State& own = state();
  auto winners = own.with_unsaved(own.read(LockWait::kShort, [&](Connection& connection) {
    return select_winners_of_variant(connection, variant);
  }));
  const std::string prefix = std::string(variant) + "/";
  std::erase_if(winners, [&](const Winner& w) { return !w.problem.starts_with(prefix); });
  for (Winner& winner : own.overlays.winners_of_variant(variant)) {
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
      [&](const Trial& trial) { return trial.device == device && trial.problem == problem; },
      trials);
  return trials;
}

std::vector<Trial> TuningStore::trials() {
  State& own = state();
  auto trials =
      own.read(LockWait::kLong, [](Connection& connection) { return select_trials(connection); });
  const std::scoped_lock lock(own.mutex);
  own.append_unsaved([](const Trial&) { return true; }, trials);
  return trials;
}

std::string TuningStore::location() {
  State& own = state();
  const std::scoped_lock lock(own.mutex);
  return own.database && own.in_use ? own.database->path() : "memory";
}

bool TuningStore::persistent() { return reason_not_persistent().empty(); }

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
  const std::string directory = cache_dir_ + "/locks";
  const std::string key = Hasher("claim").add("device", device).add("problem", problem).digest();
  auto lock = [&]() -> Result<std::optional<FileLock>> {
    DORAJIT_ASSIGN(const auto locks, TrustedDirectory::make(cache_dir_, options_.trust, {"locks"}));
    const std::string name = key + ".lock";
    // Any other user who can open the file could hold the lock for ever.
    DORAJIT_TRY(locks.check_file(name));
    return FileLock::acquire(locks.held_path() + "/" + name, FileLock::Mode::kExclusive, wait,
                             FilePlace::kCacheFolder, locks.file_mode());
  }();
  if (!lock) {
    log_once(LogLevel::kWarning, directory,
             std::format("several processes may tune the same problem at once: {}",
                         lock.error().message));
    return TuningClaim();
  }
  if (!*lock) return std::nullopt;
  return *std::move(lock);
}

}  // namespace dorajit::cache
