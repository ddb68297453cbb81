// The template of weight_norm: its configs, launches and memory.
//
// Which instruction multiplies is a rule of element types and architecture, since the bits depend
// on it: products of two 16-bit types that are the same run on the tensor cores from sm_80 on, all
// others but f64 on those of sm_90 as pairs of float16, and the rest as multiply-adds in the
// compute type. mma.sync and wgmma give the same bits.
#pragma once

#include "kernel_templates/template.h"
#include "kernel_templates/weight_norm_config.h"

namespace dorajit::kernels {

extern const Template weight_norm_template;

// As the tunables i, r, b, k, s, u, p and v.
Config as_config(const WeightNormConfig& config);

}  // namespace dorajit::kernels
