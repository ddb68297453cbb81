// The fallback chain: where the config of a problem may come from, best first (docs/tuning.md), and
// the winners of other shapes and devices at its end.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "autotune/search/tuning_session.h"
#include "cache/database/tuning_store.h"
#include "cache/records/tuning_records.h"
#include "kernel_templates/spaces.h"
#include "runtime/launch/config_source.h"
#include "runtime/launch/problem.h"

namespace dorajit::autotune {

// The problem that needs a config. Only winners of the same kernels, with a config that is valid
// for the problem on the device, are used.
struct Seeker {
  const launch::Problem& problem;
  std::string_view device;     // fingerprint
  std::string_view templates;  // hash of the kernel templates
  kernels::SpaceTraits traits{};
};

// Among the device's winners of the same variant, the one with the nearest shape: the fewest
// factors of two away, all dimensions together; null if there is none. A different alignment class
// counts as two factors of two for each halving of the vector width, and a config that fits badly
// counts as its template's misfit().
const cache::Winner* nearest_shape(std::span<const cache::Winner> winners, const Seeker& seeker);

// Among the winners of the same problem on other devices of the same kind, the one on the device
// with the most in common: name, architecture, processors, cache and memory, as listed in
// fingerprints. Null if there is none.
const cache::Winner* nearest_device(std::span<const cache::Winner> winners, const Seeker& seeker);

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
