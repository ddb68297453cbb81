// The built-in CPU kernels of one formula: for every mix of element types, which are looked up at
// run time. Used by operations/*.cc.
#pragma once

#include "kernel_templates/cpu/column_sums.h"
#include "kernel_templates/cpu/elementwise.h"
#include "kernel_templates/cpu/row_sums.h"
#include "kernel_templates/reference.h"
#include "kernel_templates/registry.h"
#include "kernel_templates/templates/streaming_configs.h"

namespace dorajit::kernels {

inline constexpr long long kBuiltinTile = 512;

template <ElementType kType, class T>
void widen_tile(const void* from, T* to, long long count) {
  const auto* elements = static_cast<const typename Element<kType>::Storage*>(from);
  for (long long i = 0; i < count; ++i) {
    to[i] = static_cast<T>(Element<kType>::widen(elements[i]));
  }
}

template <ElementType kType, class T>
void narrow_tile(const T* from, void* to, long long count) {
  auto* elements = static_cast<typename Element<kType>::Storage*>(to);
  using Compute = decltype(Element<kType>::widen(*elements));
  for (long long i = 0; i < count; ++i) {
    elements[i] = Element<kType>::narrow(static_cast<Compute>(from[i]));
  }
}

template <class T>
void widen(ElementType type, const void* from, T* to, long long count) {
  switch (type) {
    case ElementType::kFloat32:
      return widen_tile<ElementType::kFloat32>(from, to, count);
    case ElementType::kBfloat16:
      return widen_tile<ElementType::kBfloat16>(from, to, count);
    case ElementType::kFloat16:
      return widen_tile<ElementType::kFloat16>(from, to, count);
    case ElementType::kFloat64:
      return widen_tile<ElementType::kFloat64>(from, to, count);
    case ElementType::kAbsent:
      for (long long i = 0; i < count; ++i) to[i] = T(0);
      return;
  }
}

template <class T>
void narrow(ElementType type, const T* from, void* to, long long count) {
  switch (type) {
    case ElementType::kFloat32:
      return narrow_tile<ElementType::kFloat32>(from, to, count);
    case ElementType::kBfloat16:
      return narrow_tile<ElementType::kBfloat16>(from, to, count);
    case ElementType::kFloat16:
      return narrow_tile<ElementType::kFloat16>(from, to, count);
    case ElementType::kFloat64:
      return narrow_tile<ElementType::kFloat64>(from, to, count);
    case ElementType::kAbsent:
      return;
  }
}

// Spans whose element types are looked up at run time: tiles are widened to the compute type,
// evaluated, and narrowed.
template <template <class> class Formula, Broadcast kBroadcast, class Compute>
struct UntypedSpans {
  using T = Compute;
  using F = Formula<T>;
  using Order = OperandOrder<F>;
  using Pointers = SpanPointers<F>;

  const Variant* variant;

  [[nodiscard]] ElementType type(int operand) const {
    return variant->types[static_cast<std::size_t>(operand)];
  }
  [[nodiscard]] long long element_size(int operand) const { return size_in_bytes(type(operand)); }

  void run(const F& formula, const Pointers& pointers, long long count, Terms<T> terms) const {
    for (long long done = 0; done < count; done += kBuiltinTile) {
      run_tile(formula, pointers, done, count - done < kBuiltinTile ? count - done : kBuiltinTile,
               terms);
      if (terms.of != nullptr) terms.of += kBuiltinTile;
    }
  }

  void run_tile(const F& formula, const Pointers& pointers, long long offset, long long count,
                Terms<T> terms) const {
    alignas(64) T tile[Order::kFirstSum][kBuiltinTile];
    for (int i = 0; i < Order::kFirstOutput; ++i) {
      if (i >= Order::kMatrixInputs && kBroadcast == Broadcast::kPerRow) {
        widen(type(i), pointers.data[i], tile[i], 1);
        for (long long j = 1; j < count; ++j) tile[i][j] = tile[i][0];
      } else {
        widen(type(i), at(pointers, i, offset), tile[i], count);
      }
    }
    for (long long j = 0; j < count; ++j) {
      T values[Order::kFirstOutput];
      T output[F::kOutputs];
      for (int i = 0; i < Order::kFirstOutput; ++i) values[i] = tile[i][j];
      evaluate_formula(formula, values, values + Order::kMatrixInputs, output,
                       RoundAs<T>{variant->types.data()});
      for (int i = 0; i < Order::kStored; ++i) tile[Order::kFirstOutput + i][j] = output[i];
      if (terms.of == nullptr) continue;
      for (int s = 0; s < Order::kSums; ++s)
        terms.of[s * terms.stride + j] = output[Order::kStored + s];
    }
    for (int i = Order::kFirstOutput; i < Order::kFirstSum; ++i) {
      if (type(i) != ElementType::kAbsent) narrow(type(i), tile[i], at(pointers, i, offset), count);
    }
  }

  [[nodiscard]] void* at(const Pointers& pointers, int operand, long long offset) const {
    return static_cast<char*>(pointers.data[operand]) + offset * element_size(operand);
  }

  // The broadcast inputs of a channel, in their order; zeros for those that are absent.
  void load_broadcast(const KernelArguments& arguments, long long channel, T* values) const {
    for (int i = Order::kMatrixInputs; i < Order::kFirstOutput; ++i) {
      widen(type(i),
            static_cast<const char*>(arguments.operands[i].data) + channel * element_size(i),
            values++, 1);
    }
  }

  void put_sums(const KernelArguments& arguments, long long channel, const T* sums) const {
    for (int i = Order::kFirstSum; i < Order::kOperands; ++i) {
      narrow(type(i), sums++,
             static_cast<char*>(arguments.operands[i].data) + channel * element_size(i), 1);
    }
  }
};

template <template <class> class Formula, Broadcast kBroadcast, class T>
struct Builtin {
  using Spans = UntypedSpans<Formula, kBroadcast, T>;

  static void elementwise(const Variant& variant, const KernelArguments& arguments, long long first,
                          long long last) {
    ElementwisePrograms<Spans, kBuiltinElementwise, kBroadcast>::run(Spans{&variant}, arguments,
                                                                     first, last);
  }

  static void sums(const Variant& variant, const KernelArguments& arguments, long long first,
                   long long last) {
    if constexpr (kBroadcast == Broadcast::kPerColumn) {
      ColumnSumsPrograms<Spans, kBuiltinColumnSums>::run(Spans{&variant}, arguments, first, last);
    } else {
      RowSumsPrograms<Spans, kBuiltinRowSums>::run(Spans{&variant}, arguments, first, last);
    }
  }

  static void finish(const Variant& variant, const KernelArguments& arguments, long long first,
                     long long last) {
    constexpr StreamingConfig kConfig =
        kBroadcast == Broadcast::kPerColumn ? kBuiltinColumnSums : kBuiltinRowSums;
    FinishSums<Spans, kConfig, kBroadcast>::run(Spans{&variant}, arguments, first, last);
  }

  static BuiltinKernel kernel(const Variant& variant) {
    if constexpr (Formula<T>::kSums > 0) {
      if (variant.has_sum()) return {.run = sums, .finish = finish};
    }
    return {.run = elementwise};
  }
};

// The built-in kernel of a variant of the formula's operation.
template <template <class> class Formula>
BuiltinKernel builtin_kernel_of(const Variant& variant) {
  using enum Broadcast;
  if (compute_type(variant) == ElementType::kFloat64) {
    return variant.broadcast == kPerRow ? Builtin<Formula, kPerRow, double>::kernel(variant)
                                        : Builtin<Formula, kPerColumn, double>::kernel(variant);
  }
  return variant.broadcast == kPerRow ? Builtin<Formula, kPerRow, float>::kernel(variant)
                                      : Builtin<Formula, kPerColumn, float>::kernel(variant);
}

}  // namespace dorajit::kernels
