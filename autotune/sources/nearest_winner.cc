#include "autotune/sources/nearest_winner.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "cache/records/device_models.h"
#include "kernel_templates/config_limits.h"
#include "kernel_templates/sizes.h"

namespace dorajit::autotune {
namespace {

using cache::Winner;

constexpr double kPenaltyPerHalvedVector = 2;

bool can_answer(const Winner& winner, const Seeker& seeker) {
  return winner.environment.templates == seeker.templates &&
         kernels::why_config_is_invalid(seeker.problem.variant, seeker.traits,
                                        seeker.problem.vector_width, seeker.problem.largest_sizes(),
                                        winner.config)
             .empty();
}

// Distance in factors of two.
double distance(const launch::Problem& problem, const launch::Problem& other) {
  const auto factors = [](auto a, auto b) {
    return std::abs(std::log2(static_cast<double>(a) / static_cast<double>(b)));
  };
  double sum = kPenaltyPerHalvedVector * factors(problem.vector_width, other.vector_width);
  const kernels::Sizes sizes = problem.largest_sizes();
  const kernels::Sizes others = other.largest_sizes();
  const auto& dimensions = problem.variant.operation->dimensions;
  for (std::size_t i = 0; i < dimensions.size(); ++i) {
    if (dimensions[i].keying >= kernels::Keying::kDerived) continue;
    sum += factors(std::max<std::int64_t>(sizes[i], 1), std::max<std::int64_t>(others[i], 1));
  }
  return sum;
}

std::string_view kind_of(std::string_view fingerprint) {
  return fingerprint.substr(0, fingerprint.find('/'));
}

// How many parts of two fingerprints are equal, compared position by position.
int parts_in_common(std::string_view a, std::string_view b) {
  int common = 0;
  while (!a.empty() && !b.empty()) {
    const std::size_t a_end = std::min(a.find('/'), a.size());
    const std::size_t b_end = std::min(b.find('/'), b.size());
    common += a.substr(0, a_end) == b.substr(0, b_end) ? 1 : 0;
    a.remove_prefix(std::min(a_end + 1, a.size()));
    b.remove_prefix(std::min(b_end + 1, b.size()));
  }
  return common;
}

}  // namespace

const Winner* nearest_shape(std::span<const Winner> winners, const Seeker& seeker) {
  const Winner* nearest = nullptr;
  double min_distance = std::numeric_limits<double>::infinity();
  for (const Winner& winner : winners) {
    if (!cache::is_same_model(winner.device, seeker.device) || !can_answer(winner, seeker))
      continue;
    const auto problem = launch::parse_problem(winner.problem);
    if (!problem || problem->variant != seeker.problem.variant) continue;
    const double away = distance(seeker.problem, *problem) +
                        kernels::misfit(problem->variant, seeker.traits,
                                        seeker.problem.largest_sizes(), winner.config);
    if (away < min_distance) {
      min_distance = away;
      nearest = &winner;
    }
  }
  return nearest;
}

const Winner* nearest_device(std::span<const Winner> winners, const Seeker& seeker) {
  const std::string wanted = to_text(seeker.problem);
  const Winner* nearest = nullptr;
  int max_common = -1;
  for (const Winner& winner : winners) {
    if (winner.problem != wanted || winner.device == seeker.device ||
        kind_of(winner.device) != kind_of(seeker.device) || !can_answer(winner, seeker)) {
      continue;
    }
    const int common = parts_in_common(winner.device, seeker.device);
    if (common > max_common) {
      max_common = common;
      nearest = &winner;
    }
  }
  return nearest;
}

}  // namespace dorajit::autotune
