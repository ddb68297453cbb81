// The CPU kernels that the library holds, for machines without a compiler.
#pragma once

#include "kernel_templates/arguments.h"
#include "kernel_templates/config.h"
#include "kernel_templates/registry.h"

namespace dorajit::kernels {

// A kernel that was compiled into the library, for every mix of element types. `run` takes programs
// [first, last), `finish` the channels of a sum; it is null where there is no sum.
struct BuiltinKernel {
  using Function = void (*)(const Variant& variant, const KernelArguments& arguments,
                            long long first, long long last);
  Function run = nullptr;
  Function finish = nullptr;
};

// Every op that the library offers has one; the passes that compose is measured against have none,
// and `run` is null.
BuiltinKernel builtin_cpu_kernel(const Variant& variant);

// The config with which the variant's built-in kernel was compiled (num_warps is a matter of
// launch).
Config builtin_cpu_config(const Variant& variant);

}  // namespace dorajit::kernels
