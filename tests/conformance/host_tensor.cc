#include "tests/conformance/host_tensor.h"

#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "tests/conformance/plain_numbers.h"

namespace dorajit::tests {
namespace {

constexpr auto kGuard = std::byte{0xC3};

}  // namespace

HostTensor::HostTensor(kernels::ElementType type, const TensorShape& shape)
    : type_(type),
      shape_(shape),
      bytes_(static_cast<std::size_t>((shape.misalignment + shape.rows * row_stride()) *
                                      kernels::size_in_bytes(type)),
             kGuard) {}

std::size_t HostTensor::offset() const {
  return static_cast<std::size_t>(shape_.misalignment) *
         static_cast<std::size_t>(kernels::size_in_bytes(type_));
}

std::uint64_t HostTensor::bits(std::int64_t row, std::int64_t col) const {
  const auto size = static_cast<std::size_t>(kernels::size_in_bytes(type_));
  std::uint64_t value = 0;
  std::memcpy(&value,
              bytes_.data() + offset() + static_cast<std::size_t>(row * row_stride() + col) * size,
              size);
  return value;
}

void HostTensor::set_bits(std::int64_t row, std::int64_t col, std::uint64_t bits) {
  const auto size = static_cast<std::size_t>(kernels::size_in_bytes(type_));
  std::memcpy(bytes_.data() + offset() + static_cast<std::size_t>(row * row_stride() + col) * size,
              &bits, size);
}

void HostTensor::fill_random(std::mt19937& random, double special_odds) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::array<double, 14> specials = {
      0.0,   -0.0,    kInfinity,     -kInfinity,   std::nan(""), 1.0,   -1.0,
      1e-40, 0x1p-14, 3.0 * 0x1p-24, 1.0 + 0x1p-7, 1.0 - 0x1p-8, 65504, -3e38};
  std::normal_distribution<double> ordinary(0.0, 1.0);
  std::uniform_real_distribution<double> odds(0.0, 1.0);
  std::uniform_int_distribution<std::size_t> pick(0, specials.size() - 1);
  for (std::int64_t row = 0; row < shape_.rows; ++row) {
    for (std::int64_t col = 0; col < shape_.cols; ++col) {
      const double value = odds(random) < special_odds ? specials[pick(random)] : ordinary(random);
      set_bits(row, col, plain_encode(type_, value));
    }
  }
}

kernels::OperandArgument HostTensor::argument_at(std::byte* memory) const {
  return {.data = memory + offset(), .row_stride = shape_.rows > 1 ? row_stride() : 0};
}

}  // namespace dorajit::tests
