#include "cache/default_backfill.h"

#include <utility>
#include <vector>

#include "cache/tuning_rows.h"
#include "cache/tuning_run.h"
#include "kernel_templates/config_text.h"

namespace dorajit::cache {
namespace {

SqliteStatus name_default(Connection& connection, const Trial& before, const Trial& after) {
  auto statement = connection.prepare(
      "UPDATE OR IGNORE trials SET default_config = ?1, checksum = ?2 WHERE checksum = ?3");
  if (!statement) return std::unexpected(std::move(statement).error());
  const std::string config = kernels::to_text(*after.default_config);
  statement->bind(1, config);
  statement->bind(2, checksum(after));
  statement->bind(3, checksum(before));
  auto row = statement->step();
  if (!row) return std::unexpected(std::move(row).error());
  return {};
}

}  // namespace

SqliteStatus backfill_defaults(Connection& connection) {
  auto winners = select_winners(connection);
  if (!winners) return std::unexpected(std::move(winners).error());
  for (const Winner& winner : *winners) {
    auto trials = select_trials(connection, winner.device, winner.problem);
    if (!trials) return std::unexpected(std::move(trials).error());
    for (const Trial& trial : *trials) {
      Trial named = trial;
      cache::name_default({&named, 1}, winner);
      if (named.default_config == trial.default_config) continue;
      if (auto status = name_default(connection, trial, named); !status) return status;
    }
  }
  return {};
}

}  // namespace dorajit::cache
