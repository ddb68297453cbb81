// Sizes of matrices on which a config of any template that streams them is verified.
#pragma once

#include <cstdint>
#include <vector>

#include "kernel_templates/registry.h"

namespace dorajit::kernels {

// As many elements of a matrix as the host's reference computes in a moment.
inline constexpr std::int64_t kReferenceElements = 1 << 20;

// Several rows, twice, so that two seeds are tried, and ragged ones, whose last vector and last
// block are cut short.
std::vector<Sizes> verified_matrices(const Variant& variant, const Sizes& problem);

}  // namespace dorajit::kernels
