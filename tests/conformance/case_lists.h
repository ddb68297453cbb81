// The shapes, layouts and values with which every variant is tested.
#pragma once

#include <vector>

#include "tests/conformance/op_case.h"

namespace dorajit::tests {

enum class CaseList {
  kAll,  // every way in which programs, vectors, lanes, partial sums and their tiles can end
  kFew,  // small, for sweeps over many variants
};

std::vector<CaseSpec> case_list(const kernels::Variant& variant, CaseList list);

}  // namespace dorajit::tests
