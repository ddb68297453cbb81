// The inside of a TuningStore, as one process has it.
#pragma once

#include <sys/types.h>

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "cache/database.h"
#include "cache/overlay_databases.h"
#include "cache/tuning_memory.h"
#include "cache/tuning_store.h"

namespace dorajit::cache {

class TuningStore::State {
 public:
  State(const std::string& cache_dir, const TuningStoreOptions& options);

  // For a forked child: what the parent knew, unless one of its threads was changing it.
  std::unique_ptr<State> copy_for_child();

  [[nodiscard]] pid_t process() const { return process_; }

  // Opens the database once, so that it exists and its condition is known.
  void connect();

  OverlayDatabases& overlays() { return overlays_; }

  std::optional<Winner> find_winner(std::string_view device, std::string_view problem,
                                    Patience patience);
  void record(std::span<const Trial> trials, const Winner& winner);
  MergeCounts merge(std::span<const Trial> trials);
  std::optional<ImportCounts> import_trials(std::span<const Trial> trials, std::string_view source,
                                            const Progress& progress);
  std::optional<UndoCounts> undo_import(std::string_view id);
  std::vector<ImportRecord> imports();
  std::optional<std::int64_t> rebuild_winners();
  std::vector<Winner> winners();
  std::vector<Winner> winners_of_variant(std::string_view variant);
  std::vector<Trial> trials(std::string_view device, std::string_view problem);
  std::vector<Trial> trials();
  std::vector<Trial> bad_trials(std::string_view device);
  std::int64_t trial_count();

  std::string location();
  std::string reason_not_persistent();

 private:
  enum class Access : std::size_t { kRead, kPatientRead, kWrite };
  using Use = std::function<SqliteStatus(Connection&, Deadline)>;

  [[nodiscard]] std::chrono::milliseconds wait_of(Access access) const;

  // False when the database could not be used; the reason has been noted and said.
  bool with_database(Access access, const Use& use);
  // What the database does not have yet; call with writing_ held.
  bool write_unsaved();
  // What the database has, and what memory has beyond it.
  std::vector<Winner> with_remembered(std::vector<Winner> winners);
  void note_unavailable(Access access, const std::string& reason, bool busy);
  void note_available(Access access, bool read_only);
  bool is_resting(Access access);

  const std::string cache_dir_;
  const TuningStoreOptions options_;
  const pid_t process_;
  const std::unique_ptr<Database> database_;  // null: memory only
  OverlayDatabases overlays_;

  std::mutex writing_;  // one writer of this process at a time; taken before mutex_
  std::mutex mutex_;    // guards all below
  TuningMemory memory_;
  bool in_use_ = false;  // the last attempt to open the database succeeded
  std::string reason_;   // why the last write failed or the next one would; empty: it did not
  std::array<Deadline, 3> resting_until_{};  // by Access: what stops one need not stop another
};

}  // namespace dorajit::cache
