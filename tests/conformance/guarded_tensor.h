// A matrix on the host and on a device, with guards around it and between its rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernel_templates/reference.h"
#include "runtime/device/device.h"

namespace dorajit::tests {

// The memory layout of a matrix.
struct Layout {
  std::int64_t row_padding = 0;   // elements between rows
  std::int64_t misalignment = 0;  // elements before the first
};

struct GuardedTensor {
  static constexpr std::size_t kGuardBytes = 256;
  static constexpr std::byte kPoison{0xA5};

  kernels::ElementType type = kernels::ElementType::kAbsent;
  std::int64_t rows = 1;
  std::int64_t columns = 0;
  std::int64_t stride = 0;
  std::size_t begin = 0;         // bytes before the first element
  std::vector<std::byte> bytes;  // guards included
  std::unique_ptr<device::Buffer> buffer;

  GuardedTensor(kernels::ElementType of, std::int64_t height, std::int64_t width,
                const Layout& layout)
      : type(of), rows(height), columns(width), stride(width + layout.row_padding) {
    const auto size = static_cast<std::size_t>(kernels::size_in_bytes(type));
    begin = kGuardBytes + static_cast<std::size_t>(layout.misalignment) * size;
    bytes.assign(begin + static_cast<std::size_t>(rows * stride) * size + kGuardBytes, kPoison);
  }

  [[nodiscard]] kernels::OperandArgument at(std::byte* base) const {
    return {.data = base + begin, .row_stride = rows > 1 ? stride : 0};
  }
  void set(std::int64_t row, std::int64_t column, double value) {
    kernels::store_element(on_host(), type, row, column, value);
  }
  [[nodiscard]] double get(std::int64_t row, std::int64_t column) {
    return kernels::load_element<double>(on_host(), type, row, column);
  }
  [[nodiscard]] kernels::OperandArgument on_host() {
    return {.data = bytes.data() + begin, .row_stride = stride};
  }
  template <class Value>
  void fill(const Value& value) {
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t column = 0; column < columns; ++column) set(row, column, value());
    }
  }
};

}  // namespace dorajit::tests
