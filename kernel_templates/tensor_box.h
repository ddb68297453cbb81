// What the copy engine of a GPU (TMA) is to bring to shared memory at a time: boxes of a matrix, of
// which the device makes a tensor map.
#pragma once

#include <array>
#include <cstddef>

#include "kernel_templates/arguments.h"
#include "kernel_templates/element_type.h"

namespace dorajit::kernels {

inline constexpr std::size_t kTensorMaps = 5;  // of a kernel, at most

// A row of a box has 128 bytes, which are stored with the 128-byte swizzle; what lies beyond the
// matrix arrives as zeros.
struct TensorBox {
  void* data =
      nullptr;  // of the matrix, aligned to 16 bytes; null: the kernel does not read the map
  ElementType type = ElementType::kAbsent;
  long long rows = 0;
  long long columns = 0;
  long long row_bytes = 0;  // from a row of the matrix to the next; a multiple of 16
  int box_rows = 0;
};

// Those whose maps a kernel takes, as the only parameter behind its arguments, in their order.
struct TensorBoxes {
  std::array<TensorBox, kTensorMaps> boxes{};
  std::size_t count = 0;
};

}  // namespace dorajit::kernels
