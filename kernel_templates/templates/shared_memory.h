// The dynamic shared memory that programs of a GPU may ask for.
#pragma once

#include <string>

#include "kernel_templates/spaces.h"

namespace dorajit::kernels {

// Why no program of the device may ask for so many bytes; empty if it may.
std::string why_beyond_shared_memory(long long wanted, const SpaceTraits& traits);

}  // namespace dorajit::kernels
