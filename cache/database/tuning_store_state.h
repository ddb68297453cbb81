// The state of a TuningStore in one process.
#pragma once

#include <sys/types.h>

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "cache/database/database.h"
#include "cache/database/overlay_databases.h"
#include "cache/database/tuning_memory.h"
#include "cache/database/tuning_store.h"

namespace dorajit::cache {

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
