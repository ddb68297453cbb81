// The cases of weight_norm that are tested on every device.
#pragma once

#include <limits>
#include <vector>

#include "kernel_templates/element_type.h"
#include "tests/conformance/weight_norm_case.h"

namespace dorajit::tests {

// Complete and ragged tiles, several parts, rows that are aligned to less than a vector, rank 0,
// scale 0, a zero B, and a W that B A nearly cancels.
inline std::vector<WeightNormCase> weight_norm_cases() {
  return {
      {.rows = 130, .columns = 1024, .rank = 16},
      {.rows = 64, .columns = 2048, .rank = 72, .row_padding = 8},
      {.rows = 77, .columns = 777, .rank = 33, .row_padding = 3, .misalignment = 1},
      {.rows = 3, .columns = 4104, .rank = 4},
      {.rows = 1, .columns = 1, .rank = 1},
      {.rows = 65, .columns = 520, .rank = 0},
      {.rows = 65, .columns = 520, .rank = 8, .scale = 0},
      {.rows = 65, .columns = 520, .rank = 24, .has_zero_b = true},
      {.rows = 65, .columns = 512, .rank = 24, .cancels = true},
  };
}

// Factors of one sign, whose rounding errors do not cancel: they grow with every 64 of the rank on
// tensor cores, which add all terms.
inline std::vector<WeightNormCase> weight_norms_of_one_sign() {
  return {
      {.rows = 17, .columns = 264, .rank = 64, .has_one_sign = true},
      {.rows = 17, .columns = 264, .rank = 384, .has_one_sign = true},
      {.rows = 17, .columns = 264, .rank = 1024, .has_one_sign = true},
      {.rows = 17, .columns = 264, .rank = 1000, .misalignment = 1, .has_one_sign = true},
  };
}

// f32 factors that a split into pairs of float16 cannot represent unscaled, and non-finite values.
inline std::vector<WeightNormCase> weight_norms_of_wide_range() {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  return {
      {.rows = 65, .columns = 520, .rank = 72, .decades = 30},
      {.rows = 65, .columns = 520, .rank = 16, .decades = 8},
      {.rows = 65, .columns = 520, .rank = 72, .balanced_bits = 3},
      {.rows = 65, .columns = 520, .rank = 72, .balanced_bits = 10},
      {.rows = 65, .columns = 520, .rank = 520, .balanced_bits = 40},
      {.rows = 65, .columns = 520, .rank = 16, .balanced_bits = 100},
      {.rows = 65, .columns = 520, .rank = 72, .bad_a = kInfinity},
      {.rows = 65, .columns = 520, .rank = 72, .bad_a = kNan},
      {.rows = 65, .columns = 520, .rank = 72, .bad_b = -kInfinity},
      {.rows = 65, .columns = 520, .rank = 72, .bad_b = kNan},
  };
}

// The types of weight, A and B.
inline std::vector<std::vector<kernels::ElementType>> weight_norm_types() {
  using enum kernels::ElementType;
  return {{kBfloat16, kBfloat16, kBfloat16}, {kFloat32, kBfloat16, kBfloat16},
          {kFloat16, kFloat16, kFloat16},    {kFloat32, kFloat32, kFloat32},
          {kBfloat16, kFloat32, kFloat16},   {kFloat64, kFloat64, kFloat64}};
}

}  // namespace dorajit::tests
