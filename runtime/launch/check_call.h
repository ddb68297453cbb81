// Validates a call. Everything that could fail on the device is refused here.
#pragma once

#include <span>
#include <string_view>

#include "kernel_templates/registry.h"
#include "runtime/base/error.h"
#include "runtime/launch/problem.h"

namespace dorajit::launch {

struct Call {
  const kernels::Operation* operation = nullptr;
  kernels::Broadcast broadcast = kernels::Broadcast::kPerColumn;
  std::span<const TensorView> operands;  // in the registry's order
  std::span<const double> scalars;
  void* workspace = nullptr;  // on the operands' device
  std::int64_t workspace_bytes = 0;
};

// The result of a successful check.
struct CheckedCall {
  kernels::Variant variant;  // absent operands include those that nothing reads
  kernels::Sizes sizes;      // one for every dimension
  bool writes_nothing;       // whether every output is empty
};

// Checks which operands are present, their shapes, sizes, element types and devices: everything
// that is independent of their memory.
Result<CheckedCall> check_shapes(const Call& call);

// Checks shapes, sizes, element types, devices, null and misaligned pointers, strides, overlap and
// the workspace. A matrix output may be exactly a matrix input (same address, type and stride) and
// may overlap no other memory; sums and workspace may overlap nothing. Messages name the operation,
// the operand and the remedy. Allocates only for an error.
Result<CheckedCall> check_call(const Call& call);

}  // namespace dorajit::launch
