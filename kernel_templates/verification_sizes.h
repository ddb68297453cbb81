// The sizes on which a config is verified.
#pragma once

#include <vector>

#include "kernel_templates/registry.h"

namespace dorajit::kernels {

// Small sizes derived from a problem (at most about 2^20 columns) on which no wrong config computes
// the right bits: several rows, twice, so that two seeds are tried; ragged rows, whose last vector
// and last block are incomplete; and, for sums, sizes with several partial sums.
std::vector<Sizes> verification_sizes(const Variant& variant, const Sizes& problem);

}  // namespace dorajit::kernels
