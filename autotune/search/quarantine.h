// Configs that are not to be tried again.
#pragma once

#include <span>
#include <vector>

#include "autotune/search/tuning_session.h"
#include "cache/records/tuning_records.h"

namespace dorajit::autotune {

// The configs of those trials that are quarantined for the session's variant on its device, each
// once. Trials of other devices, variants and templates say nothing.
std::vector<kernels::Config> quarantined_configs(std::span<const cache::Trial> trials,
                                                 const TuningSession& session);

}  // namespace dorajit::autotune
