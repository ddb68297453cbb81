// Values derived from a config of weight_norm: its kernel, its launches and its tensor map boxes.
#pragma once

#include <string>

#include "kernel_templates/template.h"
#include "kernel_templates/weight_norm_config.h"

namespace dorajit::kernels {

// The inverse of as_config().
WeightNormConfig norm_config_from(const Config& config);

// The dynamic shared memory of a program, in bytes.
long long norm_shared_bytes(const WeightNormConfig& config, long long rank);

// Functions of the template; template.h documents what they return.
std::string norm_config_expression(const Config& config);
LaunchShape shape_norm_launch(const Variant& variant, const Config& config,
                              const LaunchArguments& arguments);
TensorBoxes list_norm_boxes(const Variant& variant, const Config& config,
                            const KernelArguments& arguments);

}  // namespace dorajit::kernels
