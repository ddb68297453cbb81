#include "cache/derivation.h"

#include <utility>

#include "cache/tuning_rows.h"
#include "cache/winner_choice.h"

namespace dorajit::cache {
namespace {

// Whether the winner is another one than before.
SqliteResult<bool> derive_winner(Connection& connection, const std::string& device,
                                 const std::string& problem) {
  DORAJIT_ASSIGN(const auto trials, select_trials(connection, device, problem));
  DORAJIT_ASSIGN(const auto before, select_winner(connection, device, problem));
  const auto after = choose_winner(trials);
  if (before.transform([](const Winner& winner) { return checksum(winner); }) ==
      after.transform([](const Winner& winner) { return checksum(winner); })) {
    return false;
  }
  const SqliteStatus status =
      after ? put_winner(connection, *after) : delete_winner(connection, device, problem);
  if (!status) return std::unexpected(status.error());
  return true;
}

}  // namespace

SqliteResult<std::int64_t> derive_winners_of(Connection& connection,
                                             const std::set<DeviceAndProblem>& pairs) {
  std::int64_t count = 0;
  for (const auto& [device, problem] : pairs) {
    DORAJIT_ASSIGN(const auto changed, derive_winner(connection, device, problem));
    if (changed) ++count;
  }
  return count;
}

SqliteResult<MergeCounts> merge_trials(Connection& connection, std::span<const Trial> trials,
                                       const std::function<void(const Trial&, bool added)>& each,
                                       const Progress& progress) {
  MergeCounts counts;
  std::set<DeviceAndProblem> touched;
  DORAJIT_TRY(insert_trials(connection, trials, [&](const Trial& trial, bool added) {
    ++(added ? counts.added : counts.known);
    if (added) touched.emplace(trial.device, trial.problem);
    if (each) each(trial, added);
    report(progress, counts.added + counts.known, std::ssize(trials));
  }));
  DORAJIT_ASSIGN(counts.winners, derive_winners_of(connection, touched));
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
