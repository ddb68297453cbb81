// Tuning for the command line: through the engine's fallback chain, or anew.
#pragma once

#include <optional>

#include "apps/cli/options/device_choice.h"
#include "autotune/engine_factory.h"
#include "runtime/base/error.h"
#include "runtime/base/statistics.h"
#include "runtime/launch/config_source.h"
#include "runtime/launch/problem.h"

namespace CLI {  // NOLINT(readability-identifier-naming): not ours
class App;
}

namespace dorajit::cli {

// Declares --seconds.
void add_seconds_option(CLI::App& app, std::optional<double>& seconds);

// Tunes the problem whether or not a winner is known, and puts the outcome beside or in the place
// of what the store has. `statistics` counts what this did.
Result<launch::ConfigAnswer> tune_again(const launch::Problem& problem, device::Device& device,
                                        const autotune::EngineParts& parts, Statistics& statistics);

}  // namespace dorajit::cli
