// Times of configs as a table whose cells are coloured.
#pragma once

#include <span>

#include "bindings/cli/report/findings.h"
#include "bindings/cli/report/html.h"

namespace dorajit::cli::report {

// Every problem by config. `problems` are of one variant.
Html heat_map(std::span<const ProblemFindings> problems);

// The colours, from the fastest config's on.
Html heat_legend();

}  // namespace dorajit::cli::report
