#include "tests/conformance/host_tensor.h"

#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "tests/conformance/plain_numbers.h"

namespace dorajit::tests {
namespace {

constexpr auto kGuard = std::byte{0xC3};
constexpr std::size_t kGuardBytes = 256;  // on either side; a multiple of every alignment

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::array<double, 2> kZeros = {0.0, -0.0};
constexpr std::array<double, 9> kMild = {0.0,     -0.0,          1.0,          -1.0,        1e-40,
                                         0x1p-14, 3.0 * 0x1p-24, 1.0 + 0x1p-7, 1.0 - 0x1p-8};
constexpr std::array<double, 5> kWild = {kInfinity, -kInfinity,
                                         std::numeric_limits<double>::quiet_NaN(), 65504, -3e38};

}  // namespace

HostTensor::HostTensor(kernels::ElementType type, const TensorShape& shape)
    : type_(type), shape_(shape) {
  if (type == kernels::ElementType::kAbsent) return;
  const auto elements = static_cast<std::size_t>(shape.rows * row_stride());
  bytes_.assign(
      offset() + elements * static_cast<std::size_t>(kernels::size_in_bytes(type)) + kGuardBytes,
      kGuard);
}

std::size_t HostTensor::offset() const {
  return kGuardBytes + static_cast<std::size_t>(shape_.misalignment) *
                           static_cast<std::size_t>(kernels::size_in_bytes(type_));
}

std::span<const std::byte> HostTensor::row(std::int64_t index) const {
  const auto size = static_cast<std::size_t>(kernels::size_in_bytes(type_));
  return std::span(bytes_).subspan(offset() + static_cast<std::size_t>(index * row_stride()) * size,
                                   static_cast<std::size_t>(shape_.cols) * size);
}

std::span<std::byte> HostTensor::row(std::int64_t index) {
  const auto size = static_cast<std::size_t>(kernels::size_in_bytes(type_));
  return std::span(bytes_).subspan(offset() + static_cast<std::size_t>(index * row_stride()) * size,
                                   static_cast<std::size_t>(shape_.cols) * size);
}

std::uint64_t HostTensor::bits(std::int64_t row, std::int64_t col) const {
  const auto size = static_cast<std::size_t>(kernels::size_in_bytes(type_));
  std::uint64_t value = 0;
  std::memcpy(&value, this->row(row).data() + static_cast<std::size_t>(col) * size, size);
  return value;
}

void HostTensor::set_bits(std::int64_t row, std::int64_t col, std::uint64_t bits) {
  const auto size = static_cast<std::size_t>(kernels::size_in_bytes(type_));
  std::memcpy(this->row(row).data() + static_cast<std::size_t>(col) * size, &bits, size);
}

void HostTensor::fill_random(std::mt19937& random, const Values& values) {
  std::normal_distribution<double> ordinary(0.0, 1.0);
  std::uniform_real_distribution<double> odds(0.0, 1.0);
  const auto pick = [&](std::span<const double> choices) {
    return choices[std::uniform_int_distribution<std::size_t>(0, choices.size() - 1)(random)];
  };
  const auto draw = [&] {
    const double at = odds(random);
    if (at < values.zeros) return pick(kZeros);
    if (at < values.zeros + values.mild) return pick(kMild);
    if (at < values.zeros + values.mild + values.wild) return pick(kWild);
    return values.center + values.spread * ordinary(random);
  };
  for (std::int64_t row = 0; row < shape_.rows; ++row) {
    for (std::int64_t col = 0; col < shape_.cols; ++col) {
      set_bits(row, col, plain_encode(type_, draw()));
    }
  }
}

kernels::OperandArgument HostTensor::argument_at(std::byte* memory) const {
  return {.data = memory + offset(), .row_stride = shape_.rows > 1 ? row_stride() : 0};
}

}  // namespace dorajit::tests
