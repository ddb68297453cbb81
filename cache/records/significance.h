// When two measured times differ by more than noise.
#pragma once

namespace dorajit::cache {

// Fewer samples say nothing about their spread, and nothing is decided on them.
inline constexpr int kMinSamples = 5;

// From the mean logarithm of the candidate's time over the default's in the same rounds, and its
// standard error: whether the candidate is faster by at least 1% and by more than three standard
// errors. The rounds must not be those that the candidate was chosen for.
bool is_faster(double log_ratio, double standard_error);

// The standard error of a median from the samples' median absolute deviation, for normal noise.
double median_standard_error(double mad, int samples);

// For who has the medians only: whether a candidate is faster than the default beyond the noise of
// both, by at least 1% and by
// more than three standard errors of the difference of the medians. Never on fewer than five
// samples.
bool is_faster(double candidate_median, double candidate_mad, double default_median,
               double default_mad, int samples);

}  // namespace dorajit::cache
