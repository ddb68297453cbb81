// Calls of compose_low_rank, compared with float64.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/conformance/every_config.h"

namespace dorajit::tests {

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

// The types of low, lora_B, result, gain, bias, out and inner.
using LowRankTypes = std::vector<kernels::ElementType>;

// Runs every config of the space that is valid for the case, or those of a slice. Besides its
// rounding, an output may differ by 2e-5 of |s g| (|low| |lora_B|^T) on a GPU, by 1e-6 of it on a
// CPU, and by five roundings in fp32. All configs must give the same bits, and only elements of the
// outputs may be written. The values are those of out, then of inner; NaN is stored as 1e308.
CaseOutcome run_low_rank(device::Device& device, launch::KernelCache& kernels,
                         const LowRankTypes& types, const LowRankCase& one,
                         kernels::SpaceKind space, const Slice& slice = {});

}  // namespace dorajit::tests
