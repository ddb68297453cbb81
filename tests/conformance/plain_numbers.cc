#include "tests/conformance/plain_numbers.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace dorajit::tests {
namespace {

using kernels::ElementType;

struct Format {
  int mantissa_bits;
  int exponent_bits;
};

Format format_of(ElementType type) {
  return type == ElementType::kFloat16 ? Format{10, 5} : Format{7, 8};
}

double decode_small(Format format, std::uint64_t bits) {
  const int sign_at = format.mantissa_bits + format.exponent_bits;
  const double sign = (bits >> sign_at & 1) != 0 ? -1.0 : 1.0;
  const int largest = (1 << format.exponent_bits) - 1;
  const int exponent = static_cast<int>(bits >> format.mantissa_bits) & largest;
  const auto mantissa = static_cast<double>(bits & ((1ULL << format.mantissa_bits) - 1));
  const int bias = largest / 2;
  if (exponent == largest) {
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - format.mantissa_bits);
  return sign * std::ldexp(mantissa + std::ldexp(1.0, format.mantissa_bits),
                           exponent - bias - format.mantissa_bits);
}

std::uint64_t encode_small(Format format, double value) {
  const int largest = (1 << format.exponent_bits) - 1;
  const int bias = largest / 2;
  const auto infinity = static_cast<std::uint64_t>(largest) << format.mantissa_bits;
  const std::uint64_t sign =
      std::signbit(value) ? 1ULL << (format.mantissa_bits + format.exponent_bits) : 0;
  if (std::isnan(value)) return infinity | 1ULL << (format.mantissa_bits - 1);
  if (std::isinf(value)) return sign | infinity;
  if (value == 0) return sign;
  const int exponent = std::max(std::ilogb(value), 1 - bias);
  // In units of the last place the rounded value is an integer; nearbyint() rounds ties to even.
  const double units = std::nearbyint(std::ldexp(std::abs(value), format.mantissa_bits - exponent));
  const double rounded = std::ldexp(units, exponent - format.mantissa_bits);
  const double limit = std::ldexp(1.0, largest - bias);
  if (rounded >= limit) return sign | infinity;
  if (rounded < std::ldexp(1.0, 1 - bias)) return sign | static_cast<std::uint64_t>(units);
  const int final_exponent = std::ilogb(rounded);
  const double significand = std::ldexp(rounded, format.mantissa_bits - final_exponent);
  return sign | (static_cast<std::uint64_t>(final_exponent + bias - 1) << format.mantissa_bits) +
                    static_cast<std::uint64_t>(significand);
}

}  // namespace

double plain_decode(ElementType type, std::uint64_t bits) {
  switch (type) {
    case ElementType::kFloat32:
      return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
    case ElementType::kFloat64:
      return std::bit_cast<double>(bits);
    default:
      return decode_small(format_of(type), bits);
  }
}

std::uint64_t plain_encode(ElementType type, double value) {
  switch (type) {
    case ElementType::kFloat32:
      return std::bit_cast<std::uint32_t>(static_cast<float>(value));
    case ElementType::kFloat64:
      return std::bit_cast<std::uint64_t>(value);
    default:
      return encode_small(format_of(type), value);
  }
}

std::uint64_t canonical_bits(ElementType type, std::uint64_t bits) {
  return std::isnan(plain_decode(type, bits))
             ? plain_encode(type, std::numeric_limits<double>::quiet_NaN())
             : bits;
}

}  // namespace dorajit::tests
