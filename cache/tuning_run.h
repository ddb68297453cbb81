// What one tuning measured: trials of one environment, time and host, and the winner among them.
#pragma once

#include <span>

#include "cache/tuning_records.h"

namespace dorajit::cache {

// Whether the winner came out of the tuning that wrote the trial.
bool are_of_one_run(const Trial& trial, const Winner& winner);

// Names the winner's default config on those trials of its run that name none.
void name_default(std::span<Trial> trials, const Winner& winner);

}  // namespace dorajit::cache
