#include "apps/cli/options/shard.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdint>
#include <format>
#include <map>
#include <system_error>
#include <utility>

#include "kernel_templates/sizes.h"
namespace dorajit::cli {

void add_shard_option(CLI::App& app, std::string& text) {
  app.add_option("--shard", text, "Only part I of N of the problems, I from 1 to N")
      ->option_text("I/N");
}

Result<Shard> parse_shard(std::string_view text) {
  if (text.empty()) return Shard{};
  Shard shard;
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  const auto index = std::from_chars(begin, end, shard.index);
  if (index.ec == std::errc{} && index.ptr != end && *index.ptr == '/') {
    const auto count = std::from_chars(index.ptr + 1, end, shard.count);
    if (count.ec == std::errc{} && count.ptr == end && shard.index >= 1 &&
        shard.index <= shard.count) {
      return shard;
    }
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
  int turn = 0;
  for (const auto& [key, problem] : ordered) {
    if (turn++ % shard.count == shard.index - 1) part.push_back(problem);
  }
  return part;
}

}  // namespace dorajit::cli
