// Calls of compose_low_rank and weight_norm, compared with float64, and the cases of them that are
// tested on every device.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "tests/conformance/every_config.h"

namespace dorajit::tests {

using Types = std::vector<kernels::ElementType>;

struct LowRankCase {
  std::int64_t rows = 1;
  std::int64_t columns = 1;
  std::int64_t rank = 0;
  std::int64_t row_padding = 0;   // elements between the rows of each matrix
  std::int64_t rank_padding = 0;  // additional elements between rows of the factors
  std::int64_t misalignment = 0;  // elements before the first of each tensor
  double scale = 0.7;
  bool is_in_place = false;   // whether `out` is `result`, if both have the same type
  bool has_zero_b = false;    // with a gain of 1: `out` equals `result` bit for bit
  bool has_one_sign = false;  // whether both factors are positive
  double bad_low = 0;         // unless 0, an element of `low`, in its last row
  double bad_result = 0;      // unless 0, an element of `result`, in row 0
};

// Runs every config of the space that is valid for the case, or those of a slice. Besides its
// rounding, an output may differ by 2e-5 of |s g| (|low| |lora_B|^T) on a GPU, by 1e-6 of it on a
// CPU, and by five roundings in fp32. All configs must give the same bits, and only elements of the
// outputs may be written. The values are those of out, then of inner; NaN is stored as 1e308.
CaseOutcome run_case(device::Device& device, launch::KernelCache& kernels, const Types& types,
                     const LowRankCase& one, kernels::SpaceKind space, const Slice& slice = {});

struct WeightNormCase {
  std::int64_t rows = 1;
  std::int64_t columns = 1;
  std::int64_t rank = 0;
  std::int64_t row_padding = 0;   // elements between the rows of each matrix
  std::int64_t misalignment = 0;  // elements before the first of each matrix
  double scale = 0.7;
  bool has_zero_b = false;
  bool has_one_sign = false;  // whether A and B are positive
  double decades = 0;  // elements of A and B are multiplied by powers of ten down to -decades
  // Rows of A are divided by powers of two up to this, columns of B multiplied by them.
  int balanced_bits = 0;
  double bad_a = 0;      // unless 0, an element of A, in its last row
  double bad_b = 0;      // unless 0, an element of B, in row 1
  bool cancels = false;  // whether W is approximately -scale * B A
};

// Runs every config of the space that is valid for the case, or those of a slice. Outputs are f32
// (f64 with f64), with a magnitude, a gain and its divisor. A norm may differ by 5e-7 (with an f32
// factor: 1e-6, f64: 1e-13) of ||W_i|| + |s| || |B| |A| ||_i. All configs must give the same bits,
// and only the outputs and the workspace may be written. Where the norm is not finite, the kernel's
// must not be finite either. The values are the norms.
CaseOutcome run_case(device::Device& device, launch::KernelCache& kernels, const Types& types,
                     const WeightNormCase& one, kernels::SpaceKind space, const Slice& slice = {});

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

// The types of low, lora_B, result, gain, bias, out and inner.
inline std::vector<Types> low_rank_types() {
  using enum kernels::ElementType;
  return {{kBfloat16, kBfloat16, kBfloat16, kFloat32, kAbsent, kBfloat16, kAbsent},
          {kBfloat16, kBfloat16, kBfloat16, kFloat32, kBfloat16, kBfloat16, kBfloat16},
          {kFloat16, kFloat16, kFloat16, kFloat16, kFloat16, kFloat16, kAbsent},
          {kBfloat16, kBfloat16, kFloat32, kFloat32, kFloat32, kFloat32, kFloat32}};
}

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
inline std::vector<Types> weight_norm_types() {
  using enum kernels::ElementType;
  return {{kBfloat16, kBfloat16, kBfloat16}, {kFloat32, kBfloat16, kBfloat16},
          {kFloat16, kFloat16, kFloat16},    {kFloat32, kFloat32, kFloat32},
          {kBfloat16, kFloat32, kFloat16},   {kFloat64, kFloat64, kFloat64}};
}

}  // namespace dorajit::tests
