// The templates that evaluate a formula for each element of matrices and sum its terms.
#pragma once

#include "kernel_templates/template.h"

namespace dorajit::kernels {

extern const Template elementwise_template;  // no sum
extern const Template column_sums_template;  // a sum for each column
extern const Template row_sums_template;     // a sum for each channel, with channels along the rows

// The template for a variant of an operation with a formula.
const Template& formula_template(const Variant& variant);

}  // namespace dorajit::kernels
