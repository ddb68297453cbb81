// Calls drawn at random, the same ones for the same seed.
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
  std::size_t config_turn = 0;  // which of the space's configs, counted around
};

// Of any variant that the library offers.
RandomCase draw_case(unsigned seed);
// Of one of these variants.
RandomCase draw_case(unsigned seed, const Variants& variants);

// Runs the cases with seeds first_seed, first_seed + 1, ... on configs of the slim space. Returns
// what failed, each with its seed. Without variants, all are drawn from.
std::vector<std::string> check_random_cases(device::Device& device, launch::KernelCache& kernels,
                                            unsigned first_seed, unsigned count,
                                            const Variants& variants = {});

}  // namespace dorajit::tests
