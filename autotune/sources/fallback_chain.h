// The fallback chain: where the config of a problem may come from, best first (docs/tuning.md).
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "autotune/search/tuning_session.h"
#include "cache/database/tuning_store.h"
#include "runtime/launch/config_source.h"

namespace dorajit::autotune {

// What was found on one source.
struct LookupResult {
  launch::ConfigOrigin origin = launch::ConfigOrigin::kDefault;
  bool answers = false;
  bool is_stale = false;  // measured with another driver or tuner: right, maybe slower
  std::optional<cache::Winner> winner{};  // what stands there, also where it does not answer
  std::string remark{};                   // why it does not answer, or why it is stale
};

// What the databases say of the very problem: the user's, then, unless that answers with what is
// not stale, the shipped ones. best_of() tells which of them to take. Reads the user's database
// once, and with it what is quarantined.
std::vector<LookupResult> find_exact(cache::TuningStore& store, TuningSession& session);

// The first that answers and is not stale, else the first that answers, else the last.
const LookupResult& best_of(std::span<const LookupResult> looks);

// The sources below, after find_exact(), down to the first that answers; the default config
// always does.
std::vector<LookupResult> find_nearest(cache::TuningStore& store, TuningSession& session);

// The answer of a source that answers.
launch::ConfigAnswer answer_of(const LookupResult& look, const TuningSession& session);

}  // namespace dorajit::autotune
