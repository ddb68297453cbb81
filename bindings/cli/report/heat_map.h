// Times of configs as tables whose cells are coloured.
#pragma once

#include <span>

#include "bindings/cli/report/findings.h"
#include "bindings/cli/report/html.h"

namespace dorajit::cli::report {

// Of all problems of one variant, neighbours in `problems`: block sizes by warps and rows over all
// of them, then every problem by config.
Html heat_maps(std::span<const ProblemFindings> problems);

// The colours, from the fastest config's on.
Html heat_legend();

}  // namespace dorajit::cli::report
