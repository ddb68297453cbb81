// A one-line report of a tuning (DORAJIT_PRINT_AUTOTUNING).
#pragma once

#include <string>

#include "autotune/search/problem_tuner.h"
#include "runtime/launch/problem.h"

namespace dorajit::autotune {

// One line with a newline: kernel, key, time and best config, worded as Triton's
// TRITON_PRINT_AUTOTUNING, then the measured times of the config and of the default.
std::string tuning_report(const launch::Problem& problem, const TuneResult& result, double seconds);

}  // namespace dorajit::autotune
