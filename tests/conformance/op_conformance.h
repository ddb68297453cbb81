// Conformance of every operation, tested on any device.
#pragma once

#include <string>
#include <vector>

#include "kernel_templates/registry.h"
#include "kernel_templates/spaces.h"
#include "runtime/device/device.h"
#include "runtime/launch/kernel_cache.h"
#include "tests/conformance/case_lists.h"
#include "tests/conformance/slice.h"
#include "tests/conformance/variant_lists.h"

namespace dorajit::tests {

enum class Configs {
  kComprehensive,  // every config of that space
  kSlim,
  kOneInTurn,  // one config of the slim space for each variant, in turn
};

// Runs the configs of each variant over the cases in every placement and compares every bit with
// the plain reference. A slice is of all kernels, and is compiled and run by one thread: its
// process shares the processors with those of other slices. Returns the failures, at most a few
// lines.
std::vector<std::string> check_op(device::Device& device, launch::KernelCache& kernels,
                                  const Variants& variants, Configs configs,
                                  CaseList list = CaseList::kAll, const Slice& slice = {});

}  // namespace dorajit::tests
