// What a config may be at all, wherever it comes from.
#pragma once

#include <string>

#include "kernel_templates/config.h"
#include "kernel_templates/registry.h"
#include "kernel_templates/spaces.h"

namespace dorajit::kernels {

// Why a config must not be compiled for data of those sizes and that alignment class on that
// device; empty if it may. Of bucketed dimensions the sizes are the largest of the bucket. Checks
// the conditions that the templates assert, and bounds what they leave open: the code that is
// generated for a thread, the rows of a program and the workers of a CPU. Every space lies within
// these limits. A config that left the space in a later version may lie within them, too, and is
// then as good as one of the space.
std::string why_config_is_invalid(const Variant& variant, const SpaceTraits& traits,
                                  int vector_width, const Sizes& sizes, const Config& config);

// The same without data and with no regard to processors: why no kernel of the variant can have the
// config on devices of that kind and architecture.
std::string why_config_is_invalid(const Variant& variant, const SpaceTraits& traits,
                                  const Config& config);

}  // namespace dorajit::kernels
