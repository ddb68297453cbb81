// The state of a TuningStore in one process.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
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

// Results of this process that are not in a database yet.
struct UnsavedResults {
  void add(std::span<const Trial> added, const Winner& winner);
  // Without the winners of their problems: these are derived from all trials of the database.
  void add(std::span<const Trial> added);

  std::vector<Trial> trials;
  std::map<std::pair<std::string, std::string>, Winner> winners;  // key: device and problem
};

// The locks, and the results that are kept beside the database. A forked child gets a new State.
class TuningStore::State {
 public:
  State(const std::string& cache_dir, const TuningStoreOptions& options);

  // Opens the database once, so that it is created and its condition is known.
  void connect();

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
  // Writes the unsaved results and then `change`, each in one transaction; call while holding
  // `writing`. Nothing if the database was not changed.
  template <class Change>
  auto write(Change change) {
    std::optional<typename std::invoke_result_t<Change, Connection&>::value_type> done;
    const bool written = write_unsaved() && write_transaction([&](Connection& connection) {
                           return change(connection).transform([&](auto counts) {
                             done.emplace(std::move(counts));
                           });
                         });
    if (!written) done.reset();
    return done;
  }
  // Writes the unsaved results; call while holding `writing`.
  bool write_unsaved();

  // The database's winners together with the unsaved ones, which replace them.
  std::vector<Winner> with_unsaved(std::vector<Winner> winners);
  // Call while holding `mutex`.
  void append_unsaved(const std::function<bool(const Trial&)>& is_wanted,
                      std::vector<Trial>& trials) const;

  const pid_t process;
  const std::unique_ptr<Database> database;  // null: memory only
  OverlayDatabases overlays;

  std::mutex writing;      // one writer of this process at a time; taken before mutex
  std::mutex mutex;        // guards all below
  UnsavedResults unsaved;  // changed only while `writing` is held, too
  bool in_use = false;     // the last attempt to open the database succeeded
  std::string reason;      // why the last write failed or the next one would; empty: it succeeded
  std::optional<Unavailable> unread;  // why the last read failed

 private:
  enum class Access { kRead, kWrite };
  using Use = std::function<SqliteStatus(Connection&)>;

  [[nodiscard]] std::chrono::milliseconds wait_of(LockWait lock_wait) const;

  // False if the database could not be used; the reason was stored and logged.
  bool with_database(Access access, LockWait lock_wait, const Use& use);
  bool write_transaction(const std::function<SqliteStatus(Connection&)>& change);
  void note_unavailable(Access access, LockWait lock_wait, const Unavailable& why);
  void note_available(Access access, bool read_only);

  const TuningStoreOptions options_;
};

}  // namespace dorajit::cache
