// Whether a call may run. Everything that could go wrong on the device is refused here.
#pragma once

#include <span>
#include <string_view>

#include "kernel_templates/registry.h"
#include "runtime/base/error.h"
#include "runtime/launch/tensor_view.h"

namespace dorajit::launch {

struct Call {
  kernels::Op op = kernels::Op::kCompose;
  std::span<const TensorView> operands;  // in the registry's order
  std::span<const double> scalars;
};

// Checks shapes, element types, devices, null and misaligned pointers, strides, sizes and overlap.
// An output may be exactly a matrix input (same address, type and stride) and may overlap nothing
// else. Messages name the op and the operand and say what to do. Allocates only for an error.
Status check_call(const Call& call);

}  // namespace dorajit::launch
