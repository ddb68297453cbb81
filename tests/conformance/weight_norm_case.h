// Calls of weight_norm, compared with float64.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/conformance/every_config.h"

namespace dorajit::tests {

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
CaseOutcome run_weight_norm(device::Device& device, launch::KernelCache& kernels,
                            const std::vector<kernels::ElementType>& factors_and_weight,
                            const WeightNormCase& one, kernels::SpaceKind space,
                            const Slice& slice = {});

}  // namespace dorajit::tests
