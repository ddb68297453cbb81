// On what sizes a config is verified.
#pragma once

#include <vector>

#include "kernel_templates/registry.h"

namespace dorajit::kernels {

// Small sizes of a problem's columns (about 2^20 of them at most) on which no wrong config computes
// the right bits: several rows, twice, so that two seeds are tried; ragged ones, whose last vector
// and last block are cut short; and, for sums, sizes that have several partial sums.
std::vector<Sizes> verification_sizes(const Variant& variant, const Sizes& problem);

}  // namespace dorajit::kernels
