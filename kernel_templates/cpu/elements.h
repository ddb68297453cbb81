// Widening and narrowing of elements on the CPU, in integer arithmetic that compilers vectorise.
//
// Rounds to nearest even, independent of the host's compiler and instruction set, and of the
// flush-to-zero mode for half subnormals. NaNs become the canonical quiet NaN of the type.
#pragma once

#include "element_type.h"

namespace dorajit::kernels {

template <class To, class From>
inline __attribute__((always_inline)) To bit_cast(From from) {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, from);
}

template <ElementType kType>
struct Element;

template <>
struct Element<ElementType::kFloat32> {
  using Storage = float;
  static inline __attribute__((always_inline)) float widen(Storage value) { return value; }
  static inline __attribute__((always_inline)) Storage narrow(float value) { return value; }
};

template <>
struct Element<ElementType::kFloat64> {
  using Storage = double;
  static inline __attribute__((always_inline)) double widen(Storage value) { return value; }
  static inline __attribute__((always_inline)) Storage narrow(double value) { return value; }
};

template <>
struct Element<ElementType::kBfloat16> {
  using Storage = unsigned short;
  static inline __attribute__((always_inline)) float widen(Storage bits) {
    return bit_cast<float>(static_cast<unsigned>(bits) << 16);
  }
  static inline __attribute__((always_inline)) Storage narrow(float value) {
    const unsigned word = bit_cast<unsigned>(value);
    const unsigned rounded = (word + 0x7fffu + ((word >> 16) & 1u)) >> 16;
    const bool is_nan = (word & 0x7fffffffu) > 0x7f800000u;
    return static_cast<Storage>(is_nan ? 0x7fffu : rounded);
  }
};

template <>
struct Element<ElementType::kFloat16> {
  using Storage = unsigned short;

  static inline __attribute__((always_inline)) float widen(Storage bits) {
    const unsigned half = bits;
    const unsigned sign = (half & 0x8000u) << 16;
    const unsigned magnitude = half & 0x7fffu;
    constexpr unsigned kRebias = (127u - 15u) << 23;
    const unsigned normal = (magnitude << 13) + kRebias;
    const unsigned special = normal + kRebias;  // infinity and NaN: exponent all ones again
    // A subnormal half equals its integer times 2^-24, exactly.
    const unsigned subnormal =
        bit_cast<unsigned>(static_cast<float>(static_cast<int>(magnitude)) * 0x1p-24f);
    const unsigned finite = magnitude < 0x0400u ? subnormal : normal;
    return bit_cast<float>(sign | (magnitude >= 0x7c00u ? special : finite));
  }

  static inline __attribute__((always_inline)) Storage narrow(float value) {
    const unsigned word = bit_cast<unsigned>(value);
    const unsigned sign = (word >> 16) & 0x8000u;
    const unsigned magnitude = word & 0x7fffffffu;
    constexpr unsigned kRebias = (127u - 15u) << 23;
    const unsigned normal = (magnitude - kRebias + 0x0fffu + ((magnitude >> 13) & 1u)) >> 13;
    // Adding 0.5 leaves the half's subnormal bits, rounded to nearest even, in the low mantissa.
    const unsigned subnormal =
        bit_cast<unsigned>(bit_cast<float>(magnitude) + 0.5f) - bit_cast<unsigned>(0.5f);
    const unsigned finite = magnitude < (113u << 23) ? subnormal : normal;
    const unsigned bounded = magnitude >= (143u << 23) ? 0x7c00u : finite;  // 2^16 and above
    return static_cast<Storage>(sign | (magnitude > 0x7f800000u ? 0x7e00u : bounded));
  }
};

}  // namespace dorajit::kernels
