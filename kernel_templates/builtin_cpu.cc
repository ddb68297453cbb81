#include "kernel_templates/builtin_cpu.h"

#include "kernel_templates/template.h"

namespace dorajit::kernels {

BuiltinKernel builtin_cpu_kernel(const Variant& variant) {
  const bool has_one = is_supported(variant) && variant.operation->builtin != nullptr;
  return has_one ? variant.operation->builtin(variant) : BuiltinKernel{};
}

Config builtin_cpu_config(const Variant& variant) { return template_of(variant).builtin_config; }

}  // namespace dorajit::kernels
