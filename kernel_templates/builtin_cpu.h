// The CPU kernels that the library holds, for machines without a compiler.
#pragma once

#include "kernel_templates/config.h"
#include "kernel_templates/registry.h"

namespace dorajit::kernels {

// Of an operation without a built-in kernel, `run` is null.
BuiltinKernel builtin_cpu_kernel(const Variant& variant);

// The config with which the variant's built-in kernel was compiled (num_warps is a matter of
// launch).
Config builtin_cpu_config(const Variant& variant);

}  // namespace dorajit::kernels
