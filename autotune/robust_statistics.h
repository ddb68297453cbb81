// Pure functions over samples. What follows from them is in significance.h.
#pragma once

#include <span>

#include "runtime/base/significance.h"  // IWYU pragma: export

namespace dorajit::autotune {

// The middle value, or the mean of the two middle ones. 0 for no samples.
double median(std::span<const double> samples);

// The median of the absolute deviations from the median: a spread that outliers do not move.
double median_absolute_deviation(std::span<const double> samples);

}  // namespace dorajit::autotune
