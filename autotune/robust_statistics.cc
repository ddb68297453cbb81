#include "autotune/robust_statistics.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace dorajit::autotune {
namespace {

constexpr double kLeastGain = 0.01;
constexpr double kStandardErrors = 3.0;
// For normal noise: a standard deviation is 1.4826 MAD, and the median's standard error is 1.2533
// times that of the mean.
constexpr double kMadToStandardError = 1.4826 * 1.2533;

}  // namespace

double median(std::span<const double> samples) {
  if (samples.empty()) return 0;
  std::vector<double> sorted(samples.begin(), samples.end());
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::ranges::nth_element(sorted, middle);
  if (sorted.size() % 2 == 1) return *middle;
  return (*std::max_element(sorted.begin(), middle) + *middle) / 2;
}

double median_absolute_deviation(std::span<const double> samples) {
  const double center = median(samples);
  std::vector<double> deviations;
  deviations.reserve(samples.size());
  for (const double sample : samples) deviations.push_back(std::abs(sample - center));
  return median(deviations);
}

bool is_faster(double candidate_median, double candidate_mad, double default_median,
               double default_mad, int samples) {
  if (samples < kLeastSamples) return false;
  const double gain = default_median - candidate_median;
  const double error = kMadToStandardError * std::hypot(candidate_mad, default_mad) /
                       std::sqrt(static_cast<double>(std::max(samples, 1)));
  return gain > kLeastGain * default_median && gain > kStandardErrors * error;
}

}  // namespace dorajit::autotune
