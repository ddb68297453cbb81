// A tensor in host memory with any stride and any alignment that its elements allow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "kernel_templates/arguments.h"
#include "kernel_templates/element_type.h"

namespace dorajit::tests {

struct TensorShape {
  std::int64_t rows = 1;
  std::int64_t cols = 1;
  std::int64_t row_padding = 0;  // elements between rows
  int misalignment = 0;          // elements that the first one lies past a 256-byte boundary
};

class HostTensor {
 public:
  HostTensor(kernels::ElementType type, const TensorShape& shape);

  [[nodiscard]] kernels::ElementType type() const { return type_; }
  [[nodiscard]] const TensorShape& shape() const { return shape_; }
  [[nodiscard]] std::int64_t row_stride() const { return shape_.cols + shape_.row_padding; }

  // The whole memory, from a 256-byte boundary to past the last row's padding.
  [[nodiscard]] const std::vector<std::byte>& bytes() const { return bytes_; }
  std::vector<std::byte>& bytes() { return bytes_; }
  // Where the first element lies in bytes().
  [[nodiscard]] std::size_t offset() const;

  [[nodiscard]] std::uint64_t bits(std::int64_t row, std::int64_t col) const;
  void set_bits(std::int64_t row, std::int64_t col, std::uint64_t bits);

  // Values of every kind: ordinary ones, and with the given odds signed zeros, subnormals,
  // infinities, NaN, 1 and its neighbours.
  void fill_random(std::mt19937& random, double special_odds);

  [[nodiscard]] kernels::OperandArgument argument_at(std::byte* memory) const;

 private:
  kernels::ElementType type_;
  TensorShape shape_;
  std::vector<std::byte> bytes_;
};

}  // namespace dorajit::tests
