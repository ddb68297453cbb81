// The operands of every CPU template, and the evaluation of a span of one row: a plain loop that
// the host compiler vectorises, conversions included.
//
// An output may be exactly an input (in place) but never a shifted one, so iterations are
// independent.
#pragma once

#include "arguments.h"
#include "broadcast.h"
#include "cpu/elements.h"
#include "math/evaluated_formula.h"
#include "streaming_config.h"

#if defined(__clang__)
#define DORAJIT_INDEPENDENT_ITERATIONS _Pragma("clang loop vectorize(assume_safety)")
#else
#define DORAJIT_INDEPENDENT_ITERATIONS _Pragma("GCC ivdep")
#endif

namespace dorajit::kernels {

// Which operands are present; the same for all element types.
template <class F>
struct OperandOrder {
  static constexpr int kMatrixInputs = F::kMatrixInputs;
  static constexpr int kBroadcastInputs = F::kBroadcastInputs;
  // Outputs with one element per input element.
  static constexpr int kStored = F::kOutputs - F::kSums;
  static constexpr int kFirstOutput = kMatrixInputs + kBroadcastInputs;
  static constexpr int kFirstSum = kFirstOutput + kStored;
  static constexpr int kSums = F::kSums;
  static constexpr int kOperands = kFirstSum + kSums;
};

// The terms of `sum` for element i of a span lie at of[sum * stride + i].
template <class T>
struct Terms {
  T* of = nullptr;  // null: no sums are computed
  long long stride = 0;
};

// Rounds a value to the type of an operand.
template <class T, ElementType... kTypes>
struct Round {
  template <int kOperand>
  DORAJIT_FORMULA T to(T value) const {
    constexpr ElementType kType[] = {kTypes...};
    return Element<kType[kOperand]>::widen(Element<kType[kOperand]>::narrow(value));
  }
};

// The addresses of each operand's elements in a span. A per-row broadcast input points to its
// single element.
template <class F>
struct SpanPointers {
  void* data[OperandOrder<F>::kOperands];
};

// The element types that one kernel was compiled for. builtin_kernels.h has tiles with the same
// interface whose types are looked up at run time.
template <template <class> class Formula, Broadcast kBroadcast, ElementType... kTypes>
struct TypedSpans {
  using T = ComputeType<kTypes...>;
  using F = Formula<T>;
  using Order = OperandOrder<F>;
  using Pointers = SpanPointers<F>;

  static constexpr ElementType kType[sizeof...(kTypes)] = {kTypes...};
  static_assert(sizeof...(kTypes) == Order::kOperands, "one element type per operand");

  template <int kOperand>
  using StorageOf = typename Element<kType[kOperand]>::Storage;

  static constexpr bool is_present(int operand) { return kType[operand] != ElementType::kAbsent; }

  static constexpr bool has_sum() {
    if constexpr (F::kSums > 0) return is_present(Order::kFirstSum);
    return false;
  }
  static constexpr bool kHasSum = has_sum();

  static long long element_size(int operand) { return size_in_bytes(kType[operand]); }

  template <int kOperand>
  static inline __attribute__((always_inline)) void widen_inputs(const Pointers& pointers,
                                                                 long long i, T* values) {
    if constexpr (kOperand < Order::kFirstOutput) {
      if constexpr (is_present(kOperand)) {
        constexpr bool kOneForAll =
            kOperand >= Order::kMatrixInputs && kBroadcast == Broadcast::kPerRow;
        values[kOperand] = Element<kType[kOperand]>::widen(
            static_cast<const StorageOf<kOperand>*>(pointers.data[kOperand])[kOneForAll ? 0 : i]);
      } else {
        values[kOperand] = T(0);
      }
      widen_inputs<kOperand + 1>(pointers, i, values);
    }
  }

  template <int kOperand>
  static inline __attribute__((always_inline)) void narrow_outputs(const T* output, long long i,
                                                                   const Pointers& pointers) {
    if constexpr (kOperand < Order::kFirstSum) {
      if constexpr (is_present(kOperand)) {
        static_cast<StorageOf<kOperand>*>(pointers.data[kOperand])[i] =
            Element<kType[kOperand]>::narrow(output[kOperand - Order::kFirstOutput]);
      }
      narrow_outputs<kOperand + 1>(output, i, pointers);
    }
  }

  // Evaluates `count` elements.
  void run(const F& formula, const Pointers& pointers, long long count, Terms<T> terms) const {
    DORAJIT_INDEPENDENT_ITERATIONS
    for (long long i = 0; i < count; ++i) {
      T values[Order::kFirstOutput];
      T output[F::kOutputs];
      widen_inputs<0>(pointers, i, values);
      evaluate_formula(formula, values, values + Order::kMatrixInputs, output,
                       Round<T, kTypes...>{});
      narrow_outputs<Order::kFirstOutput>(output, i, pointers);
      if constexpr (kHasSum) {
        for (int s = 0; s < Order::kSums; ++s) {
          terms.of[s * terms.stride + i] = output[Order::kStored + s];
        }
      }
    }
  }

  // The broadcast inputs of a channel, in their order; zeros for those that are absent.
  template <int kOperand = Order::kMatrixInputs>
  void load_broadcast(const KernelArguments& arguments, long long channel, T* values) const {
    if constexpr (kOperand < Order::kFirstOutput) {
      *values = T(0);
      if constexpr (is_present(kOperand)) {
        *values = Element<kType[kOperand]>::widen(
            static_cast<const StorageOf<kOperand>*>(arguments.operands[kOperand].data)[channel]);
      }
      load_broadcast<kOperand + 1>(arguments, channel, values + 1);
    }
  }

  // Writes one element of each sum.
  template <int kOperand = Order::kFirstSum>
  void put_sums(const KernelArguments& arguments, long long channel, const T* sums) const {
    if constexpr (kOperand < Order::kOperands) {
      static_cast<StorageOf<kOperand>*>(arguments.operands[kOperand].data)[channel] =
          Element<kType[kOperand]>::narrow(*sums);
      put_sums<kOperand + 1>(arguments, channel, sums + 1);
    }
  }
};

// The pointers to a span that begins at (row, col).
template <Broadcast kBroadcast, class Spans>
inline typename Spans::Pointers point_at(const Spans& spans, const KernelArguments& arguments,
                                         long long row, long long col) {
  using Order = typename Spans::Order;
  typename Spans::Pointers pointers;
  for (int i = 0; i < Order::kOperands; ++i) {
    const OperandArgument& operand = arguments.operands[i];
    const bool is_broadcast = i >= Order::kMatrixInputs && i < Order::kFirstOutput;
    long long at = row * operand.row_stride + col;
    if (is_broadcast)
      at = kBroadcast == Broadcast::kPerRow ? row % arguments.sizes[kChannels] : col;
    pointers.data[i] = operand.data == nullptr
                           ? nullptr
                           : static_cast<char*>(operand.data) + at * spans.element_size(i);
  }
  return pointers;
}

}  // namespace dorajit::kernels
