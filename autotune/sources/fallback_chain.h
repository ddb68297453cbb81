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

// The result of one source.
struct LookupResult {
  launch::ConfigOrigin origin = launch::ConfigOrigin::kDefault;
  bool answers = false;
  bool is_stale = false;  // measured with another driver or tuner: correct, perhaps slower
  std::optional<cache::Winner> winner{};    // the source's winner, even if it cannot be used
  std::optional<kernels::Config> pinned{};  // the config that the user has pinned
  std::string remark{};                     // why it cannot be used, or why it is stale
};

// Looks up the exact problem: a config that the user has pinned; unless that can be used, the
// winner in the user's database; and, unless that can be used and is not stale, in the shipped
// ones. best_of() selects one of the results. Reads the user's database, including the quarantined
// configs, unless the session knows what it says.
std::vector<LookupResult> find_exact(cache::TuningStore& store, TuningSession& session);

// The first usable result that is not stale, else the first usable one, else the last one.
const LookupResult& best_of(std::span<const LookupResult> looks);

// The remaining sources, after find_exact(), until the first that answers; the default config
// always does.
std::vector<LookupResult> find_nearest(cache::TuningStore& store, TuningSession& session);

// The config of a result that can be used.
launch::ConfigAnswer answer_of(const LookupResult& look, const TuningSession& session);

}  // namespace dorajit::autotune
