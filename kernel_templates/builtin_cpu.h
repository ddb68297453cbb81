// The built-in CPU kernels, for machines without a compiler.
#pragma once

#include "kernel_templates/config.h"
#include "kernel_templates/registry.h"

namespace dorajit::kernels {

// `run` is null for an operation without a built-in kernel.
BuiltinKernel builtin_cpu_kernel(const Variant& variant);

// The config that the variant's built-in kernel was compiled with (num_warps is set at launch).
Config builtin_cpu_config(const Variant& variant);

}  // namespace dorajit::kernels
