// Which variants are tried where not all can be.
#pragma once

#include <vector>

#include "kernel_templates/registry.h"

namespace dorajit::tests {

using Variants = std::vector<kernels::Variant>;

// Those that are offered and computed element by element, which the cases here are for.
std::vector<const kernels::Operation*> operations_with_a_formula();

// Every operand there and per column: each type alone, bf16 and f16 matrices with f32 channels.
Variants plain_mixes(const kernels::Operation& op);

// The plain mixes, then what it takes to bring every two types of every two operands together,
// then mixes spread over the rest, up to `most` in all.
Variants sampled_mixes(const kernels::Operation& op, std::size_t most);

// Each variant per column, and per row where the op has that form.
Variants in_both_broadcasts(const Variants& variants);

// Each variant with every combination of the operands that may be left out, and without the inputs
// that nothing then needs.
Variants with_every_subset(const Variants& variants);

// Each variant with only the sum.
Variants with_only_the_sum(const Variants& variants);

}  // namespace dorajit::tests
