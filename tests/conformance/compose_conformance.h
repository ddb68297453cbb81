// What compose promises, checked on any device.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernel_templates/registry.h"
#include "kernel_templates/spaces.h"
#include "runtime/device/device.h"
#include "runtime/launch/kernel_cache.h"

namespace dorajit::tests {

// Runs every config of the space of each variant over ragged, misaligned, strided and in-place
// cases and holds every bit against the plain reference. Returns what failed, at most a few lines.
std::vector<std::string> check_compose(device::Device& device, launch::KernelCache& kernels,
                                       const std::vector<kernels::Variant>& variants,
                                       kernels::SpaceKind space);

// The variants that the whole comprehensive space is tried on: f32, and bf16 with an f32 gain.
std::vector<kernels::Variant> widest_compose_variants();

}  // namespace dorajit::tests
