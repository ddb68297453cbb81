#include "cache/records/significance.h"

#include <algorithm>
#include <cmath>

namespace dorajit::cache {
namespace {

constexpr double kMinGain = 0.01;
constexpr double kStandardErrors = 3.0;
// For normal noise: the standard deviation is 1.4826 MAD, and the standard error of the median is
// 1.2533 times that of the mean.
constexpr double kMadToStandardError = 1.4826 * 1.2533;

}  // namespace

bool is_faster(double log_ratio, double standard_error) {
  return log_ratio <= std::log1p(-kMinGain) && -log_ratio > kStandardErrors * standard_error;
}

double median_standard_error(double mad, int samples) {
  return kMadToStandardError * mad / std::sqrt(static_cast<double>(std::max(samples, 1)));
}

bool is_faster(double candidate_median, double candidate_mad, double default_median,
               double default_mad, int samples) {
  if (samples < kMinSamples) return false;
  const double gain = default_median - candidate_median;
  // Not std::hypot, for which a wheel would require glibc 2.35.
  const double mad = std::sqrt(candidate_mad * candidate_mad + default_mad * default_mad);
  const double error = median_standard_error(mad, samples);
  return gain > kMinGain * default_median && gain > kStandardErrors * error;
}

}  // namespace dorajit::cache
