// What a TuningStore does about imports.
#include <utility>

#include "cache/imports.h"
#include "cache/transaction.h"
#include "cache/tuning_store_state.h"

namespace dorajit::cache {

std::optional<ImportCounts> TuningStore::State::import_trials(std::span<const Trial> trials,
                                                              std::string_view source,
                                                              const Progress& progress) {
  const std::scoped_lock writer(writing_);
  ImportCounts counts;
  const bool imported = write_unsaved() && with_database(Access::kWrite, [&](Connection& connection,
                                                                             Deadline deadline) {
                          return write_in_transaction(connection, deadline, [&]() -> SqliteStatus {
                            return cache::import_trials(connection, trials, source, progress)
                                .transform([&](ImportCounts found) { counts = std::move(found); });
                          });
                        });
  return imported ? std::optional(std::move(counts)) : std::nullopt;
}

std::optional<UndoCounts> TuningStore::State::undo_import(std::string_view id) {
  const std::scoped_lock writer(writing_);
  std::optional<UndoCounts> counts;
  const bool tried =
      write_unsaved() &&
      with_database(Access::kWrite, [&](Connection& connection, Deadline deadline) {
        return write_in_transaction(connection, deadline, [&]() -> SqliteStatus {
          return cache::undo_import(connection, id).transform([&](auto found) { counts = found; });
        });
      });
  return tried ? counts : std::nullopt;
}

std::vector<ImportRecord> TuningStore::State::imports() {
  std::vector<ImportRecord> records;
  with_database(Access::kPatientRead, [&](Connection& connection, Deadline) {
    return select_imports(connection).transform([&](auto found) { records = std::move(found); });
  });
  return records;
}

}  // namespace dorajit::cache
