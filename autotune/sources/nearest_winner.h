// Winners of other shapes and other devices, for a problem that was never measured.
#pragma once

#include <span>
#include <string_view>

#include "cache/records/tuning_records.h"
#include "kernel_templates/spaces.h"
#include "runtime/launch/problem.h"

namespace dorajit::autotune {

// The problem that needs a config. Only winners of the same kernels, with a config that is valid
// for the problem on the device, are used.
struct Seeker {
  const launch::Problem& problem;
  std::string_view device;     // fingerprint
  std::string_view templates;  // hash of the kernel templates
  kernels::SpaceTraits traits{};
};

// Among the device's winners of the same variant, the one with the nearest shape: the fewest
// factors of two away, all dimensions together; null if there is none. A different alignment class
// counts as two factors of two for each halving of the vector width, and a config that fits badly
// counts as its template's misfit().
const cache::Winner* nearest_shape(std::span<const cache::Winner> winners, const Seeker& seeker);

// Among the winners of the same problem on other devices of the same kind, the one on the device
// with the most in common: name, architecture, processors, cache and memory, as listed in
// fingerprints. Null if there is none.
const cache::Winner* nearest_device(std::span<const cache::Winner> winners, const Seeker& seeker);

}  // namespace dorajit::autotune
