// What the templates that sum have in common: partial sums in the workspace, and a second stage.
#pragma once

#include <cstdint>

#include "kernel_templates/launch_shape.h"
#include "kernel_templates/partial_sums.h"
#include "kernel_templates/registry.h"

namespace dorajit::kernels {

SumLayout layout_of(const Variant& variant, const Config& config, const KernelArguments& arguments);

// The second stage; without programs where each sum is whole after the first.
StageShape finish_stage(const Variant& variant, const Config& config,
                        const KernelArguments& arguments);

std::int64_t sum_workspace(const Variant& variant, const Sizes& sizes);

}  // namespace dorajit::kernels
