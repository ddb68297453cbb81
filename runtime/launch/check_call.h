// Whether a call may run. Everything that could go wrong on the device is refused here.
#pragma once

#include <span>
#include <string_view>

#include "kernel_templates/registry.h"
#include "runtime/base/error.h"
#include "runtime/launch/tensor_view.h"

namespace dorajit::launch {

struct Call {
  const kernels::Operation* operation = nullptr;
  kernels::Broadcast broadcast = kernels::Broadcast::kPerColumn;
  std::span<const TensorView> operands;  // in the registry's order
  std::span<const double> scalars;
  void* workspace = nullptr;  // on the operands' device
  std::int64_t workspace_bytes = 0;
};

// What a call that was checked computes.
struct CheckedCall {
  kernels::Variant variant;  // leaves out what nothing reads
  kernels::Sizes sizes;      // of every dimension
};

// Checks which operands there are, their shapes, sizes, element types and devices: all that does
// not depend on their memory.
Result<CheckedCall> check_shapes(const Call& call);

// Checks shapes, sizes, element types, devices, null and misaligned pointers, strides, overlap and
// the workspace. A matrix output may be exactly a matrix input (same address, type and stride) and
// may overlap nothing else; sums and workspace overlap nothing. Messages name the op and the
// operand and say what to do. Allocates only for an error.
Result<CheckedCall> check_call(const Call& call);

}  // namespace dorajit::launch
