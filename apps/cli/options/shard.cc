#include "apps/cli/options/shard.h"

#include <format>
#include <map>
#include <utility>

#include "apps/cli/options/shapes.h"
#include "kernel_templates/sizes.h"

namespace dorajit::cli {

Result<Shard> parse_shard(std::string_view text) {
  constexpr std::int64_t kMaxCount = std::int64_t{1} << 30;
  if (text.empty()) return Shard{};
  if (const auto parts = parse_numbers(text, '/'); parts && parts->size() == 2) {
    const Shard shard{.index = parts->front(), .count = parts->back()};
    if (shard.index >= 1 && shard.index <= shard.count && shard.count <= kMaxCount) return shard;
  }
  return fail(StatusCode::kInvalidArgument,
              std::format("--shard {} is not of the form I/N with I from 1 to N, as in 2/8", text));
}

std::vector<launch::Problem> part_of(const std::vector<launch::Problem>& problems,
                                     const Shard& shard) {
  const auto less = [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  };
  using Keyed = std::pair<double, std::string>;  // elements and name
  std::map<Keyed, launch::Problem, decltype(less)> ordered;
  for (const launch::Problem& problem : problems) {
    ordered.try_emplace(
        {kernels::num_elements(problem.variant, problem.largest_sizes()), to_text(problem)},
        problem);
  }
  std::vector<launch::Problem> part;
  std::int64_t turn = 0;
  for (const auto& [key, problem] : ordered) {
    if (turn++ % shard.count == shard.index - 1) part.push_back(problem);
  }
  return part;
}

}  // namespace dorajit::cli
