#include "kernel_templates/verification_sizes.h"

#include "kernel_templates/template.h"

namespace dorajit::kernels {

std::vector<Sizes> verification_sizes(const Variant& variant, const Sizes& problem) {
  return template_of(variant).verification_sizes(variant, problem);
}

}  // namespace dorajit::kernels
