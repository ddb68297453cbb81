// Robust statistics over samples: pure functions.
#pragma once

#include <span>

#include "cache/records/significance.h"  // IWYU pragma: export

namespace dorajit::autotune {

// The middle value, or the mean of the two middle ones. 0 for no samples.
double median(std::span<const double> samples);

// The median of the absolute deviations from the median: a spread that is insensitive to outliers.
double median_absolute_deviation(std::span<const double> samples);

// A mean that is insensitive to outliers, and its standard error.
struct Estimate {
  double mean = 0;
  double standard_error = 0;  // infinite for fewer than kMinSamples samples
};

// The mean without the lowest and the highest sixth of the samples. It needs two thirds of the
// samples that a median needs for the same standard error.
Estimate trimmed_mean(std::span<const double> samples);

// A candidate's typical samples before a round.
struct UsualTime {
  double median = 0;
  double deviation = 0;  // median absolute deviation
};

// Whether nearly all candidates of a round were clearly slower than usual: by a tenth, and by more
// than their own spread explains. `samples` and `usual` have the same order.
bool is_disturbed(std::span<const double> samples, std::span<const UsualTime> usual);

}  // namespace dorajit::autotune
