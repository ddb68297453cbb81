// One part of a list of problems, for several processes that tune a part each.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/launch/problem.h"

namespace dorajit::cli {

struct Shard {
  std::int64_t index = 1;  // from 1 to count
  std::int64_t count = 1;
};

// "2/8"; all of it for empty text. kInvalidArgument for anything else.
Result<Shard> parse_shard(std::string_view text);

// The problems of one part, the largest first. The parts of a list are disjoint and together the
// whole list; they do not depend on its order or repetitions. Their lengths differ by one at most,
// and each has its share of the large problems.
std::vector<launch::Problem> part_of(const std::vector<launch::Problem>& problems,
                                     const Shard& shard);

}  // namespace dorajit::cli
