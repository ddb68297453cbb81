// What is known of other shapes and other devices, for a problem that was never measured.
#pragma once

#include <span>
#include <string_view>

#include "cache/records/tuning_records.h"
#include "kernel_templates/spaces.h"
#include "runtime/launch/problem.h"

namespace dorajit::autotune {

// Who asks. Only winners of the same kernels, with a config that is valid for the problem on the
// device, can answer.
struct Seeker {
  const launch::Problem& problem;
  std::string_view device;     // fingerprint
  std::string_view templates;  // hash of the kernel templates
  kernels::SpaceTraits traits{};
};

// Of the device's winners of the same variant, the one whose shape is the fewest factors of two
// away, all dimensions together; null if there is none. A problem of another alignment class counts
// as two factors of two away for each halving of the vectors, and a config as much as its template
// says that it does not fit the problem.
const cache::Winner* nearest_shape(std::span<const cache::Winner> winners, const Seeker& seeker);

// Of the winners of the same problem on other devices of the kind, the one on the device that has
// the most in common with this one: name, architecture, processors, cache and memory, as the
// fingerprints list them. Null if there is none.
const cache::Winner* nearest_device(std::span<const cache::Winner> winners, const Seeker& seeker);

}  // namespace dorajit::autotune
