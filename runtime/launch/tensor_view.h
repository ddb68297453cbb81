// A tensor as a kernel sees it: rows x columns with contiguous columns. A tensor with one element
// per channel is one row with a column per channel. An operand that the caller leaves out has the
// element type kAbsent; its other fields are ignored.
#pragma once

#include <cstdint>
#include <span>

#include "kernel_templates/element_type.h"
#include "kernel_templates/registry.h"

namespace dorajit::launch {

struct DeviceId {
  kernels::DeviceKind kind = kernels::DeviceKind::kCpu;
  int ordinal = 0;

  friend bool operator==(const DeviceId&, const DeviceId&) = default;
};

struct TensorView {
  void* data = nullptr;
  kernels::ElementType type = kernels::ElementType::kFloat32;
  DeviceId device;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t row_stride = 0;  // in elements; relevant for two rows or more
  // The sizes of all dimensions before flattening, for operands with is_exact. Borrowed for the
  // call.
  std::span<const std::int64_t> shape{};
};

}  // namespace dorajit::launch
