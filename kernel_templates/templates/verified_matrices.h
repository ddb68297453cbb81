// The matrix sizes on which a config of a streaming template is verified.
#pragma once

#include <cstdint>
#include <vector>

#include "kernel_templates/registry.h"

namespace dorajit::kernels {

// The number of elements of a matrix that the host reference computes quickly.
inline constexpr std::int64_t kReferenceElements = 1 << 20;

// Several rows, twice, so that two seeds are tried; and ragged rows, whose last vector and last
// block are incomplete.
std::vector<Sizes> verified_matrices(const Variant& variant, const Sizes& problem);

}  // namespace dorajit::kernels
