// The ladder: where the config of a problem may come from, best first (docs/tuning.md).
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "autotune/search/tuning_session.h"
#include "cache/database/tuning_store.h"
#include "runtime/launch/config_source.h"

namespace dorajit::autotune {

// What was found on one rung.
struct RungLook {
  launch::Rung rung = launch::Rung::kDefault;
  bool answers = false;
  bool is_stale = false;  // measured with another driver or tuner: right, maybe slower
  std::optional<cache::Winner> winner{};  // what stands there, also where it does not answer
  std::string remark{};                   // why it does not answer, or why it is stale
};

// What the databases say of the very problem: the user's, then, unless that answers with what is
// not stale, the shipped ones. best_of() tells which of them to take. Reads the user's database
// once, and with it what is quarantined.
std::vector<RungLook> look_up_exactly(cache::TuningStore& store, TuningSession& session);

// The first that answers and is not stale, else the first that answers, else the last.
const RungLook& best_of(std::span<const RungLook> looks);

// The rungs below, after look_up_exactly(), down to the first that answers; the default config
// always does.
std::vector<RungLook> look_at_neighbours(cache::TuningStore& store, TuningSession& session);

// The answer of a rung that answers.
launch::ConfigAnswer answer_of(const RungLook& look, const TuningSession& session);

}  // namespace dorajit::autotune
