// The variants that are tested where not all can be.
#pragma once

#include <vector>

#include "kernel_templates/registry.h"

namespace dorajit::tests {

using Variants = std::vector<kernels::Variant>;

// The offered operations with a formula, which the cases here are for.
std::vector<const kernels::Operation*> operations_with_a_formula();

// All operands present and per column: each type alone, and bf16 and f16 matrices with f32
// channels.
Variants plain_mixes(const kernels::Operation& op);

// The plain mixes, then the mixes needed to combine every pair of types for every pair of operands,
// then mixes spread over the remaining ones, at most `most` in total.
Variants sampled_mixes(const kernels::Operation& op, std::size_t most);

// Each variant per column, and per row if the operation has that form.
Variants in_both_broadcasts(const Variants& variants);

// Each variant with every combination of its optional operands, and without the inputs that are
// then not needed.
Variants with_every_subset(const Variants& variants);

// The plain mixes with every subset of outputs; of an operation with several sums, the whole ones,
// and one without sums and with nothing else.
Variants plain_forms(const kernels::Operation& op);

// Each variant with the sum as its only output.
Variants with_only_the_sum(const Variants& variants);

}  // namespace dorajit::tests
