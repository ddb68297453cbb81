// The element types that only tensors of own kernels may have: integers, and floating-point numbers
// of 8 bits.
//
// They are values of ElementType, but not enumerators: element_type.h is compiled into the kernels
// of the operation table, which never have such operands, and the hash of it is part of what their
// winners are kept under.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <string_view>

#include "kernel_templates/element_type.h"

namespace dorajit::kernels {

inline constexpr ElementType kInt8{5};
inline constexpr ElementType kInt16{6};
inline constexpr ElementType kInt32{7};
inline constexpr ElementType kInt64{8};
inline constexpr ElementType kUint8{9};
inline constexpr ElementType kBool{10};
inline constexpr ElementType kUint16{11};
inline constexpr ElementType kUint32{12};
inline constexpr ElementType kUint64{13};
inline constexpr ElementType kFloat8E4m3{14};  // without infinities: float8_e4m3fn
inline constexpr ElementType kFloat8E5m2{15};
inline constexpr int kNumTypesOfOwnKernels = 16;  // all that a tensor of theirs may have

struct IntegerType {
  ElementType type;
  std::string_view text;  // in problems
  std::string_view name;  // as frameworks call it
  std::string_view cuda;  // in CUDA C++
  int bytes;
  std::int64_t most;  // the largest value that 64 signed bits hold, too
};

// By number, from the first one after kAbsent.
inline constexpr IntegerType kIntegerTypes[] = {
    {kInt8, "i8", "int8", "signed char", 1, std::numeric_limits<std::int8_t>::max()},
    {kInt16, "i16", "int16", "short", 2, std::numeric_limits<std::int16_t>::max()},
    {kInt32, "i32", "int32", "int", 4, std::numeric_limits<std::int32_t>::max()},
    {kInt64, "i64", "int64", "long long", 8, std::numeric_limits<std::int64_t>::max()},
    {kUint8, "u8", "uint8", "unsigned char", 1, std::numeric_limits<std::uint8_t>::max()},
    {kBool, "bool", "bool", "bool", 1, 1},
    {kUint16, "u16", "uint16", "unsigned short", 2, std::numeric_limits<std::uint16_t>::max()},
    {kUint32, "u32", "uint32", "unsigned", 4, std::numeric_limits<std::uint32_t>::max()},
    {kUint64, "u64", "uint64", "unsigned long long", 8, std::numeric_limits<std::int64_t>::max()},
};

// Null for a type that is none of them.
constexpr const IntegerType* as_integer(ElementType type) {
  const int number = static_cast<int>(type) - static_cast<int>(kInt8);
  const bool is_known = number >= 0 && number < static_cast<int>(std::size(kIntegerTypes));
  return is_known ? &kIntegerTypes[static_cast<std::size_t>(number)] : nullptr;
}

constexpr bool is_float8(ElementType type) { return type == kFloat8E4m3 || type == kFloat8E5m2; }

// Whether only tensors of own kernels have it.
constexpr bool is_of_own_kernels(ElementType type) {
  return as_integer(type) != nullptr || is_float8(type);
}

// The bytes of an element of any type; size_in_bytes() knows no such types. A look-up, because
// each call computes several sizes.
inline constexpr auto kElementSizes = [] {
  std::array<std::int8_t, kNumTypesOfOwnKernels> sizes{};
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const auto type = static_cast<ElementType>(i);
    const IntegerType* const integer = as_integer(type);
    sizes[i] = static_cast<std::int8_t>(integer != nullptr ? integer->bytes
                                        : is_float8(type)  ? 1
                                                           : size_in_bytes(type));
  }
  return sizes;
}();
constexpr int element_size(ElementType type) {
  return kElementSizes[static_cast<std::size_t>(type)];
}

}  // namespace dorajit::kernels
