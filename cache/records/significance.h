// Whether two measured times differ significantly.
#pragma once

namespace dorajit::cache {

// Fewer samples are not enough to estimate their spread, so nothing is decided on them.
inline constexpr int kMinSamples = 5;

// Whether a candidate is faster than the default by at least 1% and by more than three standard
// errors, from the mean of log(candidate time / default time) over common rounds and the standard
// error of that mean. The rounds must not be those by which the candidate was selected.
bool is_faster(double log_ratio, double standard_error);

// The standard error of a median from the samples' median absolute deviation, for normal noise.
double median_standard_error(double mad, int samples);

// The same test if only medians are known: whether a candidate is faster than the default by at
// least 1% and by more than three standard errors of the difference of the medians. False for fewer
// than five samples.
bool is_faster(double candidate_median, double candidate_mad, double default_median,
               double default_mad, int samples);

}  // namespace dorajit::cache
