// The template of compose_low_rank: its configs and launches.
#pragma once

#include "kernel_templates/compose_low_rank_config.h"
#include "kernel_templates/template.h"

namespace dorajit::kernels {

extern const Template compose_low_rank_template;

// As the tunables r, b, w, k, s, p, t and v.
Config as_config(const LowRankConfig& config);

}  // namespace dorajit::kernels
