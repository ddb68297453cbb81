#include "cache/default_backfill.h"

#include <utility>
#include <vector>

#include "cache/tuning_rows.h"
#include "cache/tuning_run.h"
#include "kernel_templates/config_text.h"

namespace dorajit::cache {
namespace {

SqliteStatus name_default(Connection& connection, const Trial& before, const Trial& after) {
  DORAJIT_ASSIGN(
      auto statement,
      connection.prepare(
          "UPDATE OR IGNORE trials SET default_config = ?1, checksum = ?2 WHERE checksum = ?3"));
  const std::string config = kernels::to_text(*after.default_config);
  statement.bind(1, config);
  statement.bind(2, checksum(after));
  statement.bind(3, checksum(before));
  DORAJIT_TRY(statement.step());
  return {};
}

}  // namespace

SqliteStatus backfill_defaults(Connection& connection) {
  DORAJIT_ASSIGN(const auto winners, select_winners(connection));
  for (const Winner& winner : winners) {
    DORAJIT_ASSIGN(const auto trials, select_trials(connection, winner.device, winner.problem));
    for (const Trial& trial : trials) {
      Trial named = trial;
      cache::name_default({&named, 1}, winner);
      if (named.default_config == trial.default_config) continue;
      DORAJIT_TRY(name_default(connection, trial, named));
    }
  }
  return {};
}

}  // namespace dorajit::cache
