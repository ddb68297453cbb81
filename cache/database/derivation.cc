#include "cache/database/derivation.h"

#include <set>
#include <string>
#include <utility>

#include "cache/database/tuning_rows.h"
#include "cache/records/winner_choice.h"

namespace dorajit::cache {
namespace {

// Whether the winner changed.
SqliteResult<bool> derive_winner(Connection& connection, const std::string& device,
                                 const std::string& problem) {
  DORAJIT_ASSIGN(const auto trials, select_trials(connection, device, problem));
  DORAJIT_ASSIGN(auto before, select_winner(connection, device, problem));
  if (before && before->device != device) before.reset();
  const auto after = choose_winner(trials);
  if (is_same(before, after)) return false;
  const SqliteStatus status =
      after ? put_winner(connection, *after) : delete_winner(connection, device, problem);
  if (!status) return std::unexpected(status.error());
  return true;
}

}  // namespace

SqliteResult<MergeCounts> merge_trials(Connection& connection, std::span<const Trial> trials,
                                       const Progress& progress) {
  MergeCounts counts;
  std::set<std::pair<std::string, std::string>> touched;  // pairs of device and problem
  DORAJIT_TRY(insert_trials(connection, trials, [&](const Trial& trial, bool added) {
    ++(added ? counts.added : counts.known);
    if (added) touched.emplace(trial.device, trial.problem);
    report(progress, counts.added + counts.known, std::ssize(trials));
  }));
  for (const auto& [device, problem] : touched) {
    DORAJIT_ASSIGN(const auto changed, derive_winner(connection, device, problem));
    if (changed) ++counts.winners;
  }
  return counts;
}

SqliteResult<std::int64_t> derive_winners(Connection& connection) {
  DORAJIT_ASSIGN(const auto trials, select_trials(connection));
  DORAJIT_TRY(connection.execute("DELETE FROM winners"));
  const auto winners = choose_winners(trials);
  for (const Winner& winner : winners) {
    DORAJIT_TRY(put_winner(connection, winner));
  }
  return std::ssize(winners);
}

}  // namespace dorajit::cache
