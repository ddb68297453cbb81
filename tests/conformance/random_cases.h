// Random calls; the same seed gives the same call.
#pragma once

#include <string>
#include <vector>

#include "tests/conformance/op_case.h"
#include "tests/conformance/variant_lists.h"

namespace dorajit::tests {

struct RandomCase {
  kernels::Variant variant;
  CaseSpec spec;
  Placement placement;
  std::size_t config_turn = 0;  // index into the space's configs, modulo their number
};

// Draws from all variants that the library offers.
RandomCase draw_case(unsigned seed);
// Draws from these variants.
RandomCase draw_case(unsigned seed, const Variants& variants);

// Runs the cases with seeds first_seed, first_seed + 1, ... with configs of the slim space. Returns
// the failures, each with its seed. Without `variants`, draws from all.
std::vector<std::string> check_random_cases(device::Device& device, launch::KernelCache& kernels,
                                            unsigned first_seed, unsigned count,
                                            const Variants& variants = {});

}  // namespace dorajit::tests
