// The operands of a kernel that is compiled for their element types. builtin_operands.h has the
// counterpart whose types are looked up at run time.
#pragma once

#include "cpu/elements.h"
#include "math/qualifiers.h"

namespace dorajit::kernels {

// Most stretches have kUsualCount elements.
template <int kUsualCount, ElementType... kTypes>
struct TypedOperands {
  using T = ComputeType<kTypes...>;
  static constexpr ElementType kType[sizeof...(kTypes)] = {kTypes...};

  static constexpr ElementType type(int operand) { return kType[operand]; }

  // `count` elements in the compute type: the operand's own, or copies in `buffer`. Null for absent
  // operands.
  template <int kOperand>
  DORAJIT_FORMULA const T* load(const void* from, long long count, T* buffer) const {
    if constexpr (kType[kOperand] == ElementType::kAbsent)
      return nullptr;
    else {
      using E = Element<kType[kOperand]>;
      const auto* elements = static_cast<const typename E::Storage*>(from);
      if constexpr (sizeof(*elements) == sizeof(T)) {
        return elements;
      } else if (count == kUsualCount) {  // lets the compiler know the count
        for (int i = 0; i < kUsualCount; ++i) buffer[i] = E::widen(elements[i]);
      } else {
        for (long long i = 0; i < count; ++i) buffer[i] = E::widen(elements[i]);
      }
      return buffer;
    }
  }

  // Must not be called for absent operands.
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
