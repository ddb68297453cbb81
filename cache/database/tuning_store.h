// The tuning results of a user: a SQLite file (docs/tuning_database.md) with memory beneath it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/database/overlay_databases.h"
#include "cache/database/tuning_claim.h"
#include "cache/files/trusted_directory.h"
#include "cache/records/progress.h"
#include "cache/records/tuning_records.h"
#include "runtime/base/error.h"

namespace dorajit::cache {

struct TuningStoreOptions {
  // How long one write may wait for other processes before it stays in memory for now.
  std::chrono::milliseconds busy_wait{5000};
  // Databases that nobody writes, such as come with an installation, in the order in which they are
  // searched. One that cannot be used is passed over, and a warning says so.
  std::vector<std::string> overlays{};
  // Of the folder and of what lies in it, and of the overlays.
  Trust trust{};
  Trust overlay_trust = kOverlayTrust;
  // Why there is no folder, where there is none, for people.
  std::string without_folder = "no cache folder is set";
};

struct MergeCounts {
  std::int64_t added = 0;    // trials that were not known
  std::int64_t known = 0;    // trials that were there already
  std::int64_t winners = 0;  // problems whose winner is another now
};

// How long a lookup waits for others to let go of the database.
enum class LockWait {
  kShort,  // a miss costs little: a quarter of a second at most
  kLong,   // a miss costs a tuning: as long as a record waits
};

// Thread-safe, shared by any number of processes, usable in a forked child. No call fails: what
// cannot be kept on disk is kept in memory for the life of the process, written with a later
// record() if the disk allows it again, and said once in the log. A lookup that reaches the
// database takes some 300 us; callers keep what they found.
class TuningStore {
 public:
  // An empty `cache_dir` means memory only.
  static std::unique_ptr<TuningStore> open(const std::string& cache_dir,
                                           const TuningStoreOptions& options = {});
  ~TuningStore();
  TuningStore(const TuningStore&) = delete;
  TuningStore& operator=(const TuningStore&) = delete;

  struct History {
    std::optional<Winner> winner;
    std::vector<Trial> bad_trials;
  };

  // The winner of a problem and the bad trials on its device, by one read of the user's database
  // and with what this process has recorded.
  History find_history(std::string_view device, std::string_view problem,
                       LockWait patience = LockWait::kShort);
  // The winner alone.
  std::optional<Winner> find_winner(std::string_view device, std::string_view problem,
                                    LockWait patience = LockWait::kShort) {
    return find_history(device, problem, patience).winner;
  }
  // Of the first overlay that has one.
  std::optional<Winner> find_overlay_winner(std::string_view device, std::string_view problem);

  // One transaction. The winner takes the place of an earlier one.
  void record(std::span<const Trial> trials, const Winner& winner);

  // Adds trials from elsewhere and derives the winners of their problems anew
  // (cache/records/winner_choice.h), in one transaction. A problem whose trials prove no winner has
  // none.
  MergeCounts merge(std::span<const Trial> trials);

  // The same, on disk or not at all: nothing where the database cannot be written.
  std::optional<MergeCounts> import_trials(std::span<const Trial> trials,
                                           const Progress& progress = {});

  // Forgets every winner and derives all from the trials: how many there are. Nothing where the
  // database cannot be written, which is then unchanged; reason_not_persistent() says why.
  std::optional<std::int64_t> rebuild_winners();

  // The following wait for others as long as a record does, but winners_of_variant(), which stands
  // before a first launch as find_history() does.

  // Ordered by device and problem. Without those of overlays.
  std::vector<Winner> winners();
  // Those of problems of a variant on any device, as Variant's to_text() names it; first the
  // user's, then those of overlays, in their order.
  std::vector<Winner> winners_of_variant(std::string_view variant);
  // Oldest record first.
  std::vector<Trial> trials(std::string_view device, std::string_view problem);
  std::vector<Trial> trials();
  std::int64_t trial_count();

  // The database's path, or "memory" when none is in use.
  std::string location();
  // Whether the last that was recorded is, or what is recorded next will be, kept on disk.
  bool persistent();
  // Empty if persistent().
  std::string reason_not_persistent();

  // kIoError if the last lookup could not read the database, so that what it returned may lack what
  // is there. For those to whom that is a failure; it says what to do.
  Status readable();

  // The right to tune a problem; nothing while another thread or process has it.
  std::optional<TuningClaim> try_claim(std::string_view device, std::string_view problem);
  std::optional<TuningClaim> wait_for_claim(std::string_view device, std::string_view problem,
                                            std::chrono::milliseconds wait);

 private:
  class State;
  TuningStore(const std::string& cache_dir, const TuningStoreOptions& options);
  State& state();

  const std::string cache_dir_;
  const TuningStoreOptions options_;
  std::atomic<State*> state_;  // owned; replaced in a forked child
};

}  // namespace dorajit::cache
