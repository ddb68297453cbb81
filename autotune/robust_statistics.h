// Pure functions over samples.
#pragma once

#include <span>

namespace dorajit::autotune {

// Fewer samples say nothing about their spread, and nothing is decided on them.
inline constexpr int kLeastSamples = 5;

// The middle value, or the mean of the two middle ones. 0 for no samples.
double median(std::span<const double> samples);

// The median of the absolute deviations from the median: a spread that outliers do not move.
double median_absolute_deviation(std::span<const double> samples);

// Whether a candidate is faster than the default beyond the noise of both: by at least 1% and by
// more than three standard errors of the difference of the medians. Never on fewer than five
// samples.
bool is_faster(double candidate_median, double candidate_mad, double default_median,
               double default_mad, int samples);

}  // namespace dorajit::autotune
