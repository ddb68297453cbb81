#include "kernel_templates/templates/formula_templates.h"

namespace dorajit::kernels {

const Template& formula_template(const Variant& variant) {
  if (!variant.has_sum()) return elementwise_template;
  return variant.broadcast == Broadcast::kPerRow ? row_sums_template : column_sums_template;
}

}  // namespace dorajit::kernels
