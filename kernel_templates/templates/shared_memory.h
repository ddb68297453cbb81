// The limit on the dynamic shared memory of programs on a GPU.
#pragma once

#include <string>

#include "kernel_templates/spaces.h"

namespace dorajit::kernels {

// Why a program cannot have that many bytes on the device; empty if it can.
std::string why_beyond_shared_memory(long long wanted, const SpaceTraits& traits);

}  // namespace dorajit::kernels
