// A second implementation of element conversions, written from the definitions, independent of the
// library's: the reference for the library's.
#pragma once

#include <cstdint>

#include "kernel_templates/element_type.h"

namespace dorajit::tests {

// The value of an element's storage bits.
double plain_decode(kernels::ElementType type, std::uint64_t bits);

// The bits of the nearest element, ties to even; overflow gives infinity, NaN a quiet NaN.
std::uint64_t plain_encode(kernels::ElementType type, double value);

// The same bits, with every NaN replaced by one NaN, because payloads and signs of NaNs are not
// specified.
std::uint64_t canonical_bits(kernels::ElementType type, std::uint64_t bits);

}  // namespace dorajit::tests
