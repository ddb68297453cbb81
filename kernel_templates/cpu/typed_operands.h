// The operands of a kernel that is compiled for their element types. Those of the same interface
// whose types are looked up at run time stand in builtin_operands.h.
#pragma once

#include "cpu/elements.h"
#include "math/qualifiers.h"

namespace dorajit::kernels {

// Stretches of kUsualCount elements are the rule.
template <int kUsualCount, ElementType... kTypes>
struct TypedOperands {
  using T = ComputeType<kTypes...>;
  static constexpr ElementType kType[sizeof...(kTypes)] = {kTypes...};

  static constexpr ElementType type(int operand) { return kType[operand]; }

  // `count` elements of the compute type: those of the operand themselves, or copies in `buffer`.
  // Null for absent operands.
  template <int kOperand>
  DORAJIT_FORMULA const T* load(const void* from, long long count, T* buffer) const {
    if constexpr (kType[kOperand] == ElementType::kAbsent)
      return nullptr;
    else {
      using E = Element<kType[kOperand]>;
      const auto* elements = static_cast<const typename E::Storage*>(from);
      if constexpr (sizeof(*elements) == sizeof(T)) {
        return elements;
      } else if (count == kUsualCount) {  // for compilers that know the count
        for (int i = 0; i < kUsualCount; ++i) buffer[i] = E::widen(elements[i]);
      } else {
        for (long long i = 0; i < count; ++i) buffer[i] = E::widen(elements[i]);
      }
      return buffer;
    }
  }

  // Not called for absent operands.
  template <int kOperand>
  DORAJIT_FORMULA void store(const T* from, long long count, void* to) const {
    if constexpr (kType[kOperand] != ElementType::kAbsent) {
      using E = Element<kType[kOperand]>;
      auto* elements = static_cast<typename E::Storage*>(to);
      for (long long i = 0; i < count; ++i) elements[i] = E::narrow(from[i]);
    }
  }
};

}  // namespace dorajit::kernels
