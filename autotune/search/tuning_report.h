// What a tuning found, for who asked to see it (DORAJIT_PRINT_AUTOTUNING).
#pragma once

#include <string>

#include "autotune/search/problem_tuner.h"
#include "runtime/launch/problem.h"

namespace dorajit::autotune {

// One line with its newline: kernel, key, time spent and best config, in the words of Triton's
// TRITON_PRINT_AUTOTUNING, then what the config and the default were measured to take.
std::string tuning_report(const launch::Problem& problem, const TuneResult& result, double seconds);

}  // namespace dorajit::autotune
