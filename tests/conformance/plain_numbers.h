// Element conversions written a second time, from the definitions and without a look at the
// library's: what the library's are held against.
#pragma once

#include <cstdint>

#include "kernel_templates/element_type.h"

namespace dorajit::tests {

// The value that the storage bits of one element stand for.
double plain_decode(kernels::ElementType type, std::uint64_t bits);

// The bits of the nearest element, ties to even; overflow gives infinity, NaN a quiet NaN.
std::uint64_t plain_encode(kernels::ElementType type, double value);

// The same bits, with every NaN replaced by one: payloads and signs of NaNs are not specified.
std::uint64_t canonical_bits(kernels::ElementType type, std::uint64_t bits);

}  // namespace dorajit::tests
