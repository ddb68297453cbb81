// The cases of compose_low_rank that are tested on every device.
#pragma once

#include <limits>
#include <vector>

#include "tests/conformance/low_rank_case.h"

namespace dorajit::tests {

// Complete and ragged tiles, one and many steps of the rank, rows that are aligned to less than a
// vector, in place, rank 0, scale 0, a zero B, and non-finite values.
inline std::vector<LowRankCase> low_rank_cases() {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  return {
      {.rows = 130, .columns = 264, .rank = 16},
      {.rows = 64, .columns = 256, .rank = 64, .row_padding = 8, .is_in_place = true},
      {.rows = 77, .columns = 333, .rank = 17, .row_padding = 3, .misalignment = 1},
      {.rows = 3, .columns = 520, .rank = 4, .is_in_place = true},
      {.rows = 1, .columns = 1, .rank = 1},
      {.rows = 33, .columns = 136, .rank = 100, .row_padding = 2},
      {.rows = 65, .columns = 72, .rank = 384},
      {.rows = 17, .columns = 40, .rank = 1024, .is_in_place = true},
      {.rows = 9, .columns = 130, .rank = 384, .has_one_sign = true},
      {.rows = 65, .columns = 136, .rank = 0},
      {.rows = 65, .columns = 136, .rank = 8, .scale = 0},
      {.rows = 65, .columns = 136, .rank = 24, .has_zero_b = true},
      {.rows = 65, .columns = 136, .rank = 24, .bad_low = kNan, .bad_result = kInfinity},
      {.rows = 65, .columns = 136, .rank = 72, .bad_low = -kInfinity, .bad_result = kNan},
  };
}

// Programs of several tiles on a GPU, all of them complete.
inline std::vector<LowRankCase> low_rank_whole_programs() {
  return {{.rows = 530, .columns = 264, .rank = 16, .is_in_place = true},
          {.rows = 530, .columns = 264, .rank = 200},
          {.rows = 530, .columns = 264, .rank = 200, .is_in_place = true}};
}

// More than twice as many tiles as a GPU has multiprocessors, so that programs that loop over tiles
// have several each; the last tiles are ragged.
inline std::vector<LowRankCase> low_rank_many_tiles() {
  return {{.rows = 2100, .columns = 2200, .rank = 72, .is_in_place = true}};
}

// Ranks for which wgmma is used on sm_90: complete and ragged stages, and rows of factors that end
// within 16 bytes.
inline std::vector<LowRankCase> low_rank_long_ranks() {
  std::vector<LowRankCase> cases;
  for (const std::int64_t rank : {40, 64, 72, 128, 200, 384, 768, 1000, 1024}) {
    cases.push_back({.rows = 130, .columns = 264, .rank = rank});
    cases.push_back({.rows = 67, .columns = 136, .rank = rank, .has_one_sign = true});
  }
  cases.push_back({.rows = 130, .columns = 264, .rank = 65, .rank_padding = 7});
  cases.push_back({.rows = 300, .columns = 520, .rank = 100, .rank_padding = 4});
  return cases;
}

inline std::vector<LowRankTypes> low_rank_types() {
  using enum kernels::ElementType;
  return {{kBfloat16, kBfloat16, kBfloat16, kFloat32, kAbsent, kBfloat16, kAbsent},
          {kBfloat16, kBfloat16, kBfloat16, kFloat32, kBfloat16, kBfloat16, kBfloat16},
          {kFloat16, kFloat16, kFloat16, kFloat16, kFloat16, kFloat16, kAbsent},
          {kBfloat16, kBfloat16, kFloat32, kFloat32, kFloat32, kFloat32, kFloat32}};
}

}  // namespace dorajit::tests
