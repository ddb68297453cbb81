// A tensor as a kernel sees it: rows x columns with contiguous columns.
#pragma once

#include <cstdint>

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
  std::int64_t row_stride = 0;  // in elements; meaningful from two rows up
};

}  // namespace dorajit::launch
