// The template of weight_norm: its configs, launches and memory.
//
// The instruction that multiplies is determined by the element types and the architecture, because
// the bits depend on it. Products of two equal 16-bit types run on the tensor cores from sm_80 on.
// All others except f64 run on the tensor cores of sm_90 as pairs of float16. The remaining ones
// are multiply-adds in the compute type. mma.sync and wgmma give the same bits.
#pragma once

#include "kernel_templates/template.h"
#include "kernel_templates/weight_norm_config.h"

namespace dorajit::kernels {

extern const Template weight_norm_template;

// The config as the tunables i, r, b, k, s, u, p and v.
Config as_config(const WeightNormConfig& config);

}  // namespace dorajit::kernels
