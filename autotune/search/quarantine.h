// Configs that must not be tried again.
#pragma once

#include <span>
#include <vector>

#include "autotune/search/tuning_session.h"
#include "cache/records/tuning_records.h"

namespace dorajit::autotune {

// The configs that the trials quarantine for the session's variant on its device, without
// duplicates. Trials of other devices, variants and templates are ignored.
std::vector<kernels::Config> quarantined_configs(std::span<const cache::Trial> trials,
                                                 const TuningSession& session);

}  // namespace dorajit::autotune
