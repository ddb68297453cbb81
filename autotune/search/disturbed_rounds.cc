#include "autotune/search/disturbed_rounds.h"

#include <algorithm>
#include <cstddef>

namespace dorajit::autotune {
namespace {

constexpr double kClearlySlower = 1.10;
// Of median absolute deviations: 2.7 standard deviations of normal noise.
constexpr double kDeviations = 4.0;
constexpr double kNearlyAll = 0.85;

}  // namespace

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
