#include "cache/tuning_memory.h"

#include <iterator>
#include <ranges>

namespace dorajit::cache {

void TuningMemory::record(std::span<const Trial> trials, const Winner& winner) {
  for (const Trial& trial : trials) {
    if (trial_checksums_.insert(checksum(trial)).second) trials_.push_back(trial);
  }
  winners_.insert_or_assign({winner.device, winner.problem}, winner);
  unsaved_.push_back({{trials.begin(), trials.end()}, winner});
}

std::optional<Winner> TuningMemory::find_winner(std::string_view device,
                                                std::string_view problem) const {
  const auto found = winners_.find({std::string(device), std::string(problem)});
  if (found == winners_.end()) return std::nullopt;
  return found->second;
}

std::optional<Winner> TuningMemory::find_unsaved_winner(std::string_view device,
                                                        std::string_view problem) const {
  for (const Unsaved& unsaved : unsaved_ | std::views::reverse) {
    if (unsaved.winner.device == device && unsaved.winner.problem == problem) {
      return unsaved.winner;
    }
  }
  return std::nullopt;
}

std::vector<Winner> TuningMemory::winners() const {
  const auto values = winners_ | std::views::values;
  return {values.begin(), values.end()};
}

void TuningMemory::mark_saved(std::size_t count) {
  unsaved_.erase(unsaved_.begin(), std::next(unsaved_.begin(), static_cast<std::ptrdiff_t>(count)));
}

}  // namespace dorajit::cache
