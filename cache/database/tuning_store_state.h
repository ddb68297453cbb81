// The state of a TuningStore in one process.
#pragma once

#include <sys/types.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "cache/database/database.h"
#include "cache/database/overlay_databases.h"
#include "cache/database/tuning_store.h"
#include "cache/records/tuning_records.h"

namespace dorajit::cache {

// The trials and winners that this process recorded, for use without a database. Not
// thread-safe.
class TuningMemory {
 public:
  void record(std::span<const Trial> trials, const Winner& winner);
  // Like TuningStore::merge(), on the results in memory.
  MergeCounts merge(std::span<const Trial> trials);
  // Drops all of it, after a change of the database that has it; nothing while a part is not saved.
  void drop_saved();

  [[nodiscard]] std::optional<Winner> find_winner(std::string_view device,
                                                  std::string_view problem) const;
  // Like find_winner(), but only for results that are not in a database yet.
  [[nodiscard]] std::optional<Winner> find_unsaved_winner(std::string_view device,
                                                          std::string_view problem) const;
  [[nodiscard]] std::vector<Winner> winners() const;
  [[nodiscard]] const std::vector<Trial>& trials() const { return trials_; }

  // One call of record() or merge() that is not in a database yet.
  struct Unsaved {
    std::vector<Trial> trials;
    std::optional<Winner> winner;  // empty: derived from all trials
  };
  [[nodiscard]] const std::vector<Unsaved>& unsaved() const { return unsaved_; }
  // The oldest `count` are now in the database.
  void mark_saved(std::size_t count);

 private:
  // False if the trial was already there.
  bool add(const Trial& trial);

  std::vector<Trial> trials_;
  std::set<std::int64_t> trial_checksums_;
  std::map<std::pair<std::string, std::string>, Winner> winners_;  // key: device and problem
  std::vector<Unsaved> unsaved_;
};

// The locks, and the results that are kept beside the database. A forked child gets a new State.
class TuningStore::State {
 public:
  enum class Access : std::size_t { kRead, kLongRead, kWrite };

  State(const std::string& cache_dir, const TuningStoreOptions& options);

  // For a forked child: a copy of the parent's results, unless one of its threads was changing
  // them.
  std::unique_ptr<State> copy_for_child();

  // Opens the database once, so that it is created and its condition is known.
  void connect();

  // Returns the result of `select` on the database, or a value-initialised result if the database
  // cannot be used; the reason was stored and logged.
  template <class Select>
  auto read(Access access, Select select) {
    typename std::invoke_result_t<Select, Connection&>::value_type rows{};
    with_database(access, [&](Connection& connection, Deadline) {
      return select(connection).transform([&](auto found) { rows = std::move(found); });
    });
    return rows;
  }
  // Writes unsaved results and then `change`, each in one transaction; call while holding
  // `writing`. Nothing if the database was not changed.
  template <class Change>
  auto write(Change change) {
    std::optional<typename std::invoke_result_t<Change, Connection&>::value_type> done;
    const bool written =
        write_unsaved() && with_database(Access::kWrite, [&](Connection& connection, Deadline end) {
          return write_in_transaction(connection, end, [&]() -> SqliteStatus {
            return change(connection).transform([&](auto counts) {
              done.emplace(std::move(counts));
            });
          });
        });
    if (!written) done.reset();
    return done;
  }
  // Writes the unsaved results; call while holding `writing`.
  bool write_unsaved();

  static Access access_of(LockWait lock_wait) {
    return lock_wait == LockWait::kShort ? Access::kRead : Access::kLongRead;
  }

  // The database's winners together with those in memory.
  std::vector<Winner> with_remembered(std::vector<Winner> winners);
  // Call while holding `mutex`.
  void append_remembered(const std::function<bool(const Trial&)>& is_wanted,
                         std::vector<Trial>& trials) const;

  const pid_t process;
  const std::unique_ptr<Database> database;  // null: memory only
  OverlayDatabases overlays;

  std::mutex writing;  // one writer of this process at a time; taken before mutex
  std::mutex mutex;    // guards all below
  TuningMemory memory;
  bool in_use = false;  // the last attempt to open the database succeeded
  std::string reason;   // why the last write failed or the next one would; empty: it succeeded
  std::optional<Unavailable> unread;  // why the last read failed

 private:
  using Use = std::function<SqliteStatus(Connection&, Deadline)>;

  [[nodiscard]] std::chrono::milliseconds wait_of(Access access) const;

  // False if the database could not be used; the reason was stored and logged.
  bool with_database(Access access, const Use& use);
  void note_unavailable(Access access, const Unavailable& why);
  void note_available(Access access, bool read_only);
  bool is_resting(Access access);

  const std::string cache_dir_;
  const TuningStoreOptions options_;
  std::array<Moment, 3> resting_until_{};  // by Access: one may be blocked while another works
};

}  // namespace dorajit::cache
