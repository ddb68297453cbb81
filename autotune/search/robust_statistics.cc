#include "autotune/search/robust_statistics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

namespace dorajit::autotune {
namespace {

constexpr std::size_t kTrimmedPart = 6;  // one in so many is trimmed at either end

constexpr double kClearlySlower = 1.10;
// Of median absolute deviations: 2.7 standard deviations of normal noise.
constexpr double kDeviations = 4.0;
constexpr double kNearlyAll = 0.85;

}  // namespace

double median(std::span<const double> samples) {
  if (samples.empty()) return 0;
  std::vector<double> sorted(samples.begin(), samples.end());
  const std::size_t middle = sorted.size() / 2;
  std::ranges::nth_element(sorted, sorted.begin() + static_cast<std::ptrdiff_t>(middle));
  const double upper = sorted[middle];
  if (sorted.size() % 2 == 1) return upper;
  return (*std::max_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(middle)) +
          upper) /
         2;
}

double median_absolute_deviation(std::span<const double> samples) {
  const double center = median(samples);
  std::vector<double> deviations;
  deviations.reserve(samples.size());
  for (const double sample : samples) deviations.push_back(std::abs(sample - center));
  return median(deviations);
}

Estimate trimmed_mean(std::span<const double> samples) {
  const std::size_t count = samples.size();
  if (count == 0) return {.standard_error = std::numeric_limits<double>::infinity()};
  std::vector<double> sorted(samples.begin(), samples.end());
  std::ranges::sort(sorted);
  const std::size_t cut = count < 3 ? 0 : std::max<std::size_t>(1, count / kTrimmedPart);
  const double lowest = sorted[cut];
  const double highest = sorted[count - 1 - cut];
  double kept = 0;
  double winsorized = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (i >= cut && i < count - cut) kept += sorted[i];
    winsorized += std::clamp(sorted[i], lowest, highest);
  }
  const auto left = static_cast<double>(count - 2 * cut);
  Estimate estimate{.mean = kept / left, .standard_error = std::numeric_limits<double>::infinity()};
  if (count < static_cast<std::size_t>(cache::kMinSamples)) return estimate;
  winsorized /= static_cast<double>(count);
  double squares = 0;
  for (const double sample : sorted) {
    const double deviation = std::clamp(sample, lowest, highest) - winsorized;
    squares += deviation * deviation;
  }
  // Yuen's standard error of a trimmed mean.
  estimate.standard_error = std::sqrt(squares / (left * (left - 1)));
  return estimate;
}

bool is_disturbed(std::span<const double> samples, std::span<const UsualTime> usual) {
  std::size_t slower = 0;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const double limit = std::max(kClearlySlower * usual[i].median,
                                  usual[i].median + kDeviations * usual[i].deviation);
    if (samples[i] > limit) ++slower;
  }
  return !samples.empty() &&
         static_cast<double>(slower) >= kNearlyAll * static_cast<double>(samples.size());
}

}  // namespace dorajit::autotune
