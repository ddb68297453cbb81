// Limits that every config must meet, independent of where it comes from.
#pragma once

#include <string>

#include "kernel_templates/config.h"
#include "kernel_templates/registry.h"
#include "kernel_templates/spaces.h"

namespace dorajit::kernels {

// Why a config must not be compiled for data of those sizes and that alignment class on that
// device; empty if it may. For bucketed dimensions, pass the largest size of the bucket. Checks the
// conditions that the templates assert, and bounds what they leave open: the code generated for a
// thread, the rows of a program and the workers of a CPU. Every config of a space is within these
// limits. A config that a later version removed from the space may be within them too, and is then
// equally valid.
std::string why_config_is_invalid(const Variant& variant, const SpaceTraits& traits,
                                  int vector_width, const Sizes& sizes, const Config& config);

// The same without data and independent of the number of processors: why no kernel of the variant
// can have the config on devices of that kind and architecture.
std::string why_config_is_invalid(const Variant& variant, const SpaceTraits& traits,
                                  const Config& config);

}  // namespace dorajit::kernels
