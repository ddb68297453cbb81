// The template of weight_norm: its configs, launches and memory.
//
// The instruction that multiplies is determined by the element types and the architecture, because
// the bits depend on it. Products run on the tensor cores from sm_80 on; factors that are not of
// one 16-bit type are split into pairs of float16 first. Before that, and in f64, they are
// multiply-adds in the compute type. mma.sync and wgmma give the same bits.
#pragma once

#include <cstdint>
#include <string>

#include "kernel_templates/template.h"
#include "kernel_templates/weight_norm_config.h"

namespace dorajit::kernels {

extern const Template weight_norm_template;

// The config as the tunables i, r, b, k, s, u, p and v.
Config as_config(const WeightNormConfig& config);

// The inverse of as_config().
WeightNormConfig norm_config_from(const Config& config);

// The rank of the factors that tensor cores multiply.
std::int64_t factor_rank(const Variant& variant, std::int64_t rank);

// The dynamic shared memory of a program, in bytes. `rank`: factor_rank().
long long norm_shared_bytes(const WeightNormConfig& config, long long rank);

// Functions of the template; template.h documents what they return.
std::string norm_config_expression(const Config& config);
LaunchShape shape_norm_launch(const Variant& variant, const Config& config,
                              const LaunchArguments& arguments, int processors);
TensorBoxes list_norm_boxes(const Variant& variant, const Config& config,
                            const LaunchArguments& arguments, int processors);

}  // namespace dorajit::kernels
