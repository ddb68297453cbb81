// The boxes of a matrix that the tensor memory accelerator (TMA) of a GPU loads to shared memory;
// the device makes a tensor map from them.
#pragma once

#include <array>
#include <cstddef>

#include "kernel_templates/arguments.h"
#include "kernel_templates/element_type.h"

namespace dorajit::kernels {

inline constexpr std::size_t kTensorMaps = 5;  // maximum of a kernel

// A row of a box has 128 bytes, stored with the 128-byte swizzle; elements outside the matrix are
// zero.
struct TensorBox {
  // Of the matrix, aligned to 16 bytes. Null: the kernel does not read the map.
  void* data = nullptr;
  ElementType type = ElementType::kAbsent;
  long long rows = 0;
  long long columns = 0;
  long long row_bytes = 0;  // from one row of the matrix to the next; a multiple of 16
  int box_rows = 0;
};

// The boxes of a kernel's tensor maps, in the order of the parameter that follows its arguments.
struct TensorBoxes {
  std::array<TensorBox, kTensorMaps> boxes{};
  std::size_t count = 0;
};

}  // namespace dorajit::kernels
