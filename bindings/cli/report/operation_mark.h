// What stands for an operation in a chart.
#pragma once

#include <cstddef>

#include "bindings/cli/report/html.h"

namespace dorajit::cli::report {

// The marks of the first 64 operations differ in shape, in colour or in both; those of the first 8
// in both. `operation` is the place among all operations.
Html operation_mark(std::size_t operation, double x, double y, const Html& title = {});

}  // namespace dorajit::cli::report
