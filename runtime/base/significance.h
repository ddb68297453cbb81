// When two measured medians differ by more than noise: the rule for who has no more than what was
// recorded. A tuning, which has the rounds themselves, compares round by round.
#pragma once

namespace dorajit {

// Fewer samples say nothing about their spread, and nothing is decided on them.
inline constexpr int kLeastSamples = 5;

// Whether a candidate is faster than the default beyond the noise of both: by at least 1% and by
// more than three standard errors of the difference of the medians. Never on fewer than five
// samples.
bool is_faster(double candidate_median, double candidate_mad, double default_median,
               double default_mad, int samples);

}  // namespace dorajit
