// A tensor in host memory with any stride and any alignment that its elements allow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "kernel_templates/arguments.h"
#include "kernel_templates/element_type.h"

namespace dorajit::tests {

struct TensorShape {
  std::int64_t rows = 1;
  std::int64_t cols = 1;
  std::int64_t row_padding = 0;  // elements between rows
  int misalignment = 0;  // offset of the first element from a 256-byte boundary, in elements
};

// Normally distributed values, some of which are replaced by special ones with these probabilities.
struct Values {
  double center = 0;
  double spread = 1;
  double zeros = 0;  // signed zeros
  double mild = 0;   // signed zeros, subnormals, 1 and its neighbours
  double wild = 0;   // infinities, NaN and the ends of the range
};

class HostTensor {
 public:
  // With type kAbsent, it has no memory.
  HostTensor(kernels::ElementType type, const TensorShape& shape);

  [[nodiscard]] kernels::ElementType type() const { return type_; }
  [[nodiscard]] const TensorShape& shape() const { return shape_; }
  [[nodiscard]] std::int64_t row_stride() const { return shape_.cols + shape_.row_padding; }

  // All memory from a 256-byte boundary on, including guards around the rows.
  [[nodiscard]] const std::vector<std::byte>& bytes() const { return bytes_; }
  std::vector<std::byte>& bytes() { return bytes_; }
  // Offset of the first element in bytes().
  [[nodiscard]] std::size_t offset() const;

  // The elements of one row.
  [[nodiscard]] std::span<const std::byte> row(std::int64_t index) const;
  std::span<std::byte> row(std::int64_t index);

  [[nodiscard]] std::uint64_t bits(std::int64_t row, std::int64_t col) const;
  void set_bits(std::int64_t row, std::int64_t col, std::uint64_t bits);

  void fill_random(std::mt19937& random, const Values& values);

  [[nodiscard]] kernels::OperandArgument argument_at(std::byte* memory) const;

 private:
  kernels::ElementType type_;
  TensorShape shape_;
  std::vector<std::byte> bytes_;
};

}  // namespace dorajit::tests
