#include "autotune/search/element_values.h"

#include <cmath>

#include "kernel_templates/float8.h"
#include "kernel_templates/reference.h"

namespace dorajit::autotune {

using kernels::ElementType;

double element_of(std::span<const std::byte> bytes, ElementType type, std::size_t i) {
  if (const auto* const float8 = kernels::as_float8(type)) {
    return kernels::widen_float8(*float8, static_cast<unsigned char>(bytes[i]));
  }
  const kernels::OperandArgument place{.data = const_cast<std::byte*>(bytes.data()),
                                       .row_stride = 0};
  return kernels::load_element<double>(place, type, 0, static_cast<long long>(i));
}

void set_element(std::span<std::byte> bytes, ElementType type, std::size_t i, double value) {
  if (const auto* const float8 = kernels::as_float8(type)) {
    bytes[i] = std::byte{kernels::narrow_float8(*float8, static_cast<float>(value))};
    return;
  }
  const kernels::OperandArgument place{.data = bytes.data(), .row_stride = 0};
  kernels::store_element(place, type, 0, static_cast<long long>(i), value);
}

double step_of(ElementType type) {
  switch (type) {
    case ElementType::kBfloat16:
      return 0x1p-7;
    case ElementType::kFloat16:
      return 0x1p-10;
    default:
      break;
  }
  const auto* const float8 = kernels::as_float8(type);
  return float8 != nullptr ? std::ldexp(1, -float8->mantissa_bits) : 0;
}

double smallest_normal(ElementType type) {
  if (const auto* const float8 = kernels::as_float8(type)) return std::ldexp(1, 1 - float8->bias);
  return type == ElementType::kFloat16 ? 0x1p-14 : 0;
}

}  // namespace dorajit::autotune
