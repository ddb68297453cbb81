// The trials and winners that this process recorded, for use without a database.
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

}  // namespace dorajit::cache
