// The template of compose_low_rank: its configs and launches.
#pragma once

#include <string>

#include "kernel_templates/compose_low_rank_config.h"
#include "kernel_templates/template.h"

namespace dorajit::kernels {

extern const Template compose_low_rank_template;

// As the tunables r, b, w, k, s, p, t and v.
Config as_config(const LowRankConfig& config);

// The reverse of as_config().
LowRankConfig low_rank_config_from(const Config& config);

// The dynamic shared memory of a program.
long long low_rank_program_bytes(const Variant& variant, const LowRankConfig& config);

// Parts of the template; template.h says what they return.
std::string low_rank_config_expression(const Config& config);
LaunchShape shape_low_rank_launch(const Variant& variant, const Config& config,
                                  const LaunchArguments& arguments, int processors);
TensorBoxes list_low_rank_boxes(const Variant& variant, const Config& config,
                                const LaunchArguments& arguments, int processors);

}  // namespace dorajit::kernels
