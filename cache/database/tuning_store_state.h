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
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "cache/database/database.h"
#include "cache/database/overlay_databases.h"
#include "cache/database/transaction.h"
#include "cache/database/tuning_memory.h"
#include "cache/database/tuning_store.h"

namespace dorajit::cache {

// Locks, and what is kept beside the database. A forked child gets another one.
class TuningStore::State {
 public:
  enum class Access : std::size_t { kRead, kPatientRead, kWrite };

  State(const std::string& cache_dir, const TuningStoreOptions& options);

  // For a forked child: what the parent knew, unless one of its threads was changing it.
  std::unique_ptr<State> copy_for_child();

  // Opens the database once, so that it exists and its condition is known.
  void connect();

  // What `select` makes of the database, or a value-initialised result where it cannot be used; the
  // reason has been noted and said.
  template <class Select>
  auto read(Access access, Select select) {
    typename std::invoke_result_t<Select, Connection&>::value_type rows{};
    with_database(access, [&](Connection& connection, Deadline) {
      return select(connection).transform([&](auto found) { rows = std::move(found); });
    });
    return rows;
  }
  // Makes `change`, and what is not saved yet before it, each in one transaction; call with writing
  // held. Nothing where the database was not changed.
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
  // What the database does not have yet; call with writing held.
  bool write_unsaved();

  static Access access_of(LockWait patience) {
    return patience == LockWait::kShort ? Access::kRead : Access::kPatientRead;
  }

  // What the database has, and what memory has beyond it.
  std::vector<Winner> with_remembered(std::vector<Winner> winners);
  // Call with mutex held.
  void append_remembered(const std::function<bool(const Trial&)>& is_wanted,
                         std::vector<Trial>& trials) const;

  const pid_t process;
  const std::unique_ptr<Database> database;  // null: memory only
  OverlayDatabases overlays;

  std::mutex writing;  // one writer of this process at a time; taken before mutex
  std::mutex mutex;    // guards all below
  TuningMemory memory;
  bool in_use = false;  // the last attempt to open the database succeeded
  std::string reason;   // why the last write failed or the next one would; empty: it did not
  std::optional<Unavailable> unread;  // why the last read failed

 private:
  using Use = std::function<SqliteStatus(Connection&, Deadline)>;

  [[nodiscard]] std::chrono::milliseconds wait_of(Access access) const;

  // False when the database could not be used; the reason has been noted and said.
  bool with_database(Access access, const Use& use);
  void note_unavailable(Access access, const Unavailable& why);
  void note_available(Access access, bool read_only);
  bool is_resting(Access access);

  const std::string cache_dir_;
  const TuningStoreOptions options_;
  std::array<Deadline, 3> resting_until_{};  // by Access: what stops one need not stop another
};

}  // namespace dorajit::cache
