// The common parts of templates with sums: partial sums in the workspace, and a second stage.
#pragma once

#include <cstdint>

#include "kernel_templates/launch_shape.h"
#include "kernel_templates/partial_sums.h"
#include "kernel_templates/registry.h"

namespace dorajit::kernels {

SumLayout layout_of(const Variant& variant, const Config& config, const KernelArguments& arguments);

// The second stage; it has no programs if each sum is complete after the first.
StageShape finish_stage(const Variant& variant, const Config& config,
                        const KernelArguments& arguments);

std::int64_t sum_workspace(const Variant& variant, const Sizes& sizes);

}  // namespace dorajit::kernels
