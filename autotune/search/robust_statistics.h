// Pure functions over samples, and when they say that one config is faster than another.
#pragma once

#include <span>

#include "cache/records/significance.h"  // IWYU pragma: export

namespace dorajit::autotune {

// The middle value, or the mean of the two middle ones. 0 for no samples.
double median(std::span<const double> samples);

// The median of the absolute deviations from the median: a spread that outliers do not move.
double median_absolute_deviation(std::span<const double> samples);

// A mean that outliers do not move, and how uncertain it is.
struct Estimate {
  double mean = 0;
  double standard_error = 0;  // infinite for fewer than kMinSamples samples
};

// The mean of what is left without the sixth of the samples that is lowest and the one that is
// highest. It needs two thirds of the samples that a median needs to be as certain.
Estimate trimmed_mean(std::span<const double> samples);

}  // namespace dorajit::autotune
