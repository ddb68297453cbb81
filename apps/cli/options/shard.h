// One part of a list of problems, for several processes that tune a part each.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/launch/problem.h"

namespace CLI {  // NOLINT(readability-identifier-naming): not ours
class App;
}

namespace dorajit::cli {

struct Shard {
  int index = 1;  // from 1 to count
  int count = 1;
};

// Declares --shard.
void add_shard_option(CLI::App& app, std::string& text);

// "2/8"; all of it for empty text. kInvalidArgument for anything else.
Result<Shard> parse_shard(std::string_view text);

// The problems of one part, the largest first. The parts of a list are disjoint and together the
// whole list; they do not depend on its order or repetitions. Their lengths differ by one at most,
// and each has its share of the large problems.
std::vector<launch::Problem> part_of(const std::vector<launch::Problem>& problems,
                                     const Shard& shard);

}  // namespace dorajit::cli
