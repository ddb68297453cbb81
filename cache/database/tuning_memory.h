// What this process has recorded, for when no database can keep it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cache/database/tuning_store.h"
#include "cache/records/tuning_records.h"

namespace dorajit::cache {

// Not thread-safe.
class TuningMemory {
 public:
  void record(std::span<const Trial> trials, const Winner& winner);
  // As TuningStore::merge(), with what is in memory.
  MergeCounts merge(std::span<const Trial> trials);
  // Forgets every winner and derives all from the trials.
  void rebuild_winners();

  [[nodiscard]] std::optional<Winner> find_winner(std::string_view device,
                                                  std::string_view problem) const;
  // As find_winner(), but only what no database has yet.
  [[nodiscard]] std::optional<Winner> find_unsaved_winner(std::string_view device,
                                                          std::string_view problem) const;
  [[nodiscard]] std::vector<Winner> winners() const;
  [[nodiscard]] const std::vector<Trial>& trials() const { return trials_; }

  // One call of record() or merge() that no database has yet.
  struct Unsaved {
    std::vector<Trial> trials;
    std::optional<Winner> winner;  // nothing: it follows from all trials
  };
  [[nodiscard]] const std::vector<Unsaved>& unsaved() const { return unsaved_; }
  // The oldest `count` are in the database now.
  void mark_saved(std::size_t count);

 private:
  // False: it was there already.
  bool add(const Trial& trial);

  std::vector<Trial> trials_;
  std::set<std::int64_t> trial_checksums_;
  std::map<std::pair<std::string, std::string>, Winner> winners_;  // by device and problem
  std::vector<Unsaved> unsaved_;
};

}  // namespace dorajit::cache
