#include "cache/database/tuning_memory.h"

#include <algorithm>
#include <iterator>
#include <ranges>

#include "cache/records/winner_choice.h"

namespace dorajit::cache {

void TuningMemory::record(std::span<const Trial> trials, const Winner& winner) {
  for (const Trial& trial : trials) add(trial);
  winners_.insert_or_assign({winner.device, winner.problem}, winner);
  unsaved_.push_back({{trials.begin(), trials.end()}, winner});
}

bool TuningMemory::add(const Trial& trial) {
  if (!trial_checksums_.insert(checksum(trial)).second) return false;
  trials_.push_back(trial);
  return true;
}

MergeCounts TuningMemory::merge(std::span<const Trial> trials) {
  MergeCounts counts;
  std::set<std::pair<std::string, std::string>> touched;
  for (const Trial& trial : trials) {
    const bool added = add(trial);
    ++(added ? counts.added : counts.known);
    if (added) touched.emplace(trial.device, trial.problem);
  }
  for (const auto& pair : touched) {
    std::vector<Trial> theirs;
    std::ranges::copy_if(trials_, std::back_inserter(theirs), [&](const Trial& trial) {
      return trial.device == pair.first && trial.problem == pair.second;
    });
    const auto winner = choose_winner(theirs);
    if (is_same(find_winner(pair.first, pair.second), winner)) continue;
    ++counts.winners;
    if (winner) {
      winners_.insert_or_assign(pair, *winner);
    } else {
      winners_.erase(pair);
    }
  }
  unsaved_.push_back({{trials.begin(), trials.end()}, std::nullopt});
  return counts;
}

void TuningMemory::drop_saved() {
  if (unsaved_.empty()) *this = {};
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
    if (unsaved.winner && unsaved.winner->device == device && unsaved.winner->problem == problem) {
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
