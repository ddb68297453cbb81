// Floating-point numbers of 8 bits on the host, which generates and compares values of them.
#pragma once

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string_view>

#include "kernel_templates/integer_types.h"

namespace dorajit::kernels {

struct Float8Type {
  ElementType type;
  std::string_view text;  // in problems
  int mantissa_bits;
  int bias;  // of the exponent
  float largest;
  bool has_infinity;
};

inline constexpr Float8Type kFloat8Types[] = {
    {kFloat8E4m3, "f8e4m3", 3, 7, 448, false},
    {kFloat8E5m2, "f8e5m2", 2, 15, 57344, true},
};

// Null for a type that is none of them.
constexpr const Float8Type* as_float8(ElementType type) {
  const auto* const found = std::ranges::find(kFloat8Types, type, &Float8Type::type);
  return found != std::end(kFloat8Types) ? found : nullptr;
}

inline float widen_float8(const Float8Type& type, unsigned char bits) {
  const int magnitude = bits & 0x7f;
  const int exponent = magnitude >> type.mantissa_bits;
  const int mantissa = magnitude & ((1 << type.mantissa_bits) - 1);
  const int leading = exponent == 0 ? 0 : 1 << type.mantissa_bits;
  float value = std::ldexp(static_cast<float>(leading + mantissa),
                           std::max(exponent, 1) - type.bias - type.mantissa_bits);
  if (value > type.largest) value = type.has_infinity && mantissa == 0 ? INFINITY : NAN;
  return bits > 0x7f ? -value : value;
}

// Rounds to nearest even; numbers beyond the largest become the largest.
inline unsigned char narrow_float8(const Float8Type& type, float value) {
  const int sign = std::signbit(value) ? 0x80 : 0;
  if (std::isnan(value)) return static_cast<unsigned char>(sign | 0x7f);
  const float magnitude = std::min(std::abs(value), type.largest);
  const int smallest = 1 - type.bias;  // exponent of normal numbers
  const int exponent = magnitude > 0 ? std::max(std::ilogb(magnitude), smallest) : smallest;
  // Steps of the number's binade: a number that rounds up to the next one has its bits, too.
  const float steps = std::nearbyint(std::ldexp(magnitude, type.mantissa_bits - exponent));
  return static_cast<unsigned char>(
      sign | (static_cast<int>(steps) + ((exponent - smallest) << type.mantissa_bits)));
}

}  // namespace dorajit::kernels
