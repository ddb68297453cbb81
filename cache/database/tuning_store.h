// A user's tuning results: a SQLite file (docs/tuning_database.md) and a copy in memory.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/database/overlay_databases.h"
#include "cache/files/shared_file.h"
#include "cache/files/trusted_directory.h"
#include "cache/records/pins.h"
#include "cache/records/tuning_records.h"
#include "runtime/base/error.h"

namespace dorajit::cache {

struct TuningStoreOptions {
  // How long one write may wait for other processes before the results stay in memory.
  std::chrono::milliseconds busy_wait{5000};
  // Read-only databases, such as those of an installation, in search order. A database that cannot
  // be used is skipped with a warning.
  std::vector<std::string> overlays{};
  // Applies to the folder, its contents and the overlays.
  Trust trust{};
  Trust overlay_trust = kOverlayTrust;
  // Why there is no cache folder, for messages.
  std::string without_folder = "no cache folder is set";
  // Pins that are all, instead of those in the cache folder.
  std::optional<PinFile> lock{};
};

struct MergeCounts {
  std::int64_t added = 0;    // trials that were new
  std::int64_t known = 0;    // trials that existed already
  std::int64_t winners = 0;  // problems whose winner changed
};

struct ForgottenCounts {
  std::int64_t trials = 0;
  std::int64_t winners = 0;
};

// The exclusive right to tune one problem. Held until destroyed; a killed process loses its claims.
// Empty if the cache folder cannot be used: then every claim is granted, because processes cannot
// coordinate.
using TuningClaim = std::optional<FileLock>;

// How long a lookup waits for other processes to release the database.
enum class LockWait {
  kShort,  // a miss is cheap: at most a quarter of a second
  kLong,   // a miss costs a tuning: as long as a record waits
};

// Thread-safe, shared by any number of processes, usable in a forked child, which does not get what
// its parent has only in memory. No call fails: results that cannot be stored on disk are kept in
// memory until the process ends, logged once, and written by a later record() if the disk allows it
// again. A lookup that reads the database takes about 300 us; callers should keep the result.
class TuningStore {
 public:
  // With an empty `cache_dir`, results are kept only in memory.
  static std::unique_ptr<TuningStore> open(const std::string& cache_dir,
                                           const TuningStoreOptions& options = {});
  ~TuningStore();
  TuningStore(const TuningStore&) = delete;
  TuningStore& operator=(const TuningStore&) = delete;

  struct History {
    std::optional<Winner> winner;
    std::vector<Trial> bad_trials;
  };

  // The winner of a problem and the bad trials on its device, from one read of the user's database
  // and from what this process has not saved. Where the winner that was recorded last is of another
  // environment than `here`, the one of the trials in that environment, if they have one.
  History find_history(std::string_view device, std::string_view problem,
                       LockWait lock_wait = LockWait::kShort, const Environment* here = nullptr);
  // Only the winner.
  std::optional<Winner> find_winner(std::string_view device, std::string_view problem,
                                    LockWait lock_wait = LockWait::kShort) {
    return find_history(device, problem, lock_wait).winner;
  }
  // The winner in the first overlay that has one.
  std::optional<Winner> find_overlay_winner(std::string_view device, std::string_view problem);

  // In one transaction. Replaces an earlier winner.
  void record(std::span<const Trial> trials, const Winner& winner);

  // Adds trials from elsewhere and derives the winners of their problems again
  // (cache/records/winner_choice.h), in one transaction. A problem whose trials prove no winner has
  // none afterwards. Trials that cannot be written have no winner before they are.
  void merge(std::span<const Trial> trials);

  // The same, but only on disk: nothing if the database cannot be written.
  std::optional<MergeCounts> import_trials(std::span<const Trial> trials,
                                           const Progress& progress = {});

  // Discards all winners, derives them from the trials and returns their number. Nothing if the
  // database cannot be written; it is then unchanged, and reason_not_persistent() gives the reason.
  std::optional<std::int64_t> rebuild_winners();

  // Deletes trials and winner of a problem on a device, in one transaction, as if it had never been
  // tuned: how many there were. Empty text stands for any device and any problem. kIoError where
  // the database cannot be written, which is then unchanged.
  Result<ForgottenCounts> forget(std::string_view device, std::string_view problem);

  // What the user has pinned, which lookups prefer to winners.
  [[nodiscard]] const Pins& pins() const { return pins_; }

  // The following functions wait as long as a record does, except winners_of_variant(), which may
  // delay a first launch like find_history().

  // Sorted by device and problem. Without those of overlays.
  std::vector<Winner> winners();
  // The winners of a variant's problems on any device; `variant` is the variant's to_text(). The
  // user's come first, then those of overlays, in their order.
  std::vector<Winner> winners_of_variant(std::string_view variant);
  // In order of recording: of a problem on a device, or all.
  std::vector<Trial> trials(std::string_view device = {}, std::string_view problem = {});
  std::int64_t trial_count() { return std::ssize(trials()); }

  // The path of the database, or "memory" if there is none.
  std::string location();
  // Whether the last results were stored on disk, or the next ones will be.
  bool persistent() { return reason_not_persistent().empty(); }
  // Empty if persistent().
  std::string reason_not_persistent();

  // kIoError if the last lookup could not read the database, so that results may be missing. For
  // callers that treat this as a failure; the message has the remedy.
  Status readable();

  // The right to tune a problem; nothing if another thread or process holds it for the entire wait.
  std::optional<TuningClaim> claim(std::string_view device, std::string_view problem,
                                   std::chrono::milliseconds wait = std::chrono::milliseconds(0));

 private:
  class State;
  TuningStore(const std::string& cache_dir, const TuningStoreOptions& options);
  State& state();

  const std::string cache_dir_;
  const TuningStoreOptions options_;
  const Pins pins_;
  OverlayDatabases overlays_;
  std::atomic<State*> state_;  // owned; replaced in a forked child
};

}  // namespace dorajit::cache
