// The counterpart of TypedOperands for built-in kernels: element types are looked up at run time.
#pragma once

#include "kernel_templates/builtin_kernels.h"

namespace dorajit::kernels {

template <class Compute>
struct UntypedOperands {
  using T = Compute;

  const Variant* variant;

  [[nodiscard]] ElementType type(int operand) const {
    return variant->types[static_cast<std::size_t>(operand)];
  }

  template <int kOperand>
  const T* load(const void* from, long long count, T* buffer) const {
    constexpr ElementType kOwn = sizeof(T) == 8 ? ElementType::kFloat64 : ElementType::kFloat32;
    if (type(kOperand) == kOwn) return static_cast<const T*>(from);
    widen(type(kOperand), from, buffer, count);
    return buffer;
  }

  template <int kOperand>
  void store(const T* from, long long count, void* to) const {
    narrow(type(kOperand), from, to, count);
  }
};

}  // namespace dorajit::kernels
