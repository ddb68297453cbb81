// The reference evaluation of a formula: plain loops, with element types looked up at run time.
#pragma once

#include <bit>
#include <cstddef>
#include <span>
#include <vector>

#include "kernel_templates/arguments.h"
#include "kernel_templates/cpu/elements.h"
#include "kernel_templates/element_type.h"
#include "kernel_templates/math/evaluated_formula.h"
#include "kernel_templates/partial_sums.h"
#include "kernel_templates/registry.h"

namespace dorajit::kernels {

template <class T>
T load_element(const OperandArgument& operand, ElementType type, long long row, long long col) {
  const long long at = row * operand.row_stride + col;
  switch (type) {
    case ElementType::kFloat32:
      return static_cast<T>(static_cast<const float*>(operand.data)[at]);
    case ElementType::kFloat64:
      return static_cast<T>(static_cast<const double*>(operand.data)[at]);
    case ElementType::kBfloat16:
      return static_cast<T>(Element<ElementType::kBfloat16>::widen(
          static_cast<const unsigned short*>(operand.data)[at]));
    case ElementType::kFloat16:
      return static_cast<T>(Element<ElementType::kFloat16>::widen(
          static_cast<const unsigned short*>(operand.data)[at]));
    case ElementType::kAbsent:
      break;
  }
  return T(0);
}

template <class T>
void store_element(const OperandArgument& operand, ElementType type, long long row, long long col,
                   T value) {
  const long long at = row * operand.row_stride + col;
  switch (type) {
    case ElementType::kFloat32:
      static_cast<float*>(operand.data)[at] = static_cast<float>(value);
      break;
    case ElementType::kFloat64:
      static_cast<double*>(operand.data)[at] = static_cast<double>(value);
      break;
    case ElementType::kBfloat16:
      static_cast<unsigned short*>(operand.data)[at] =
          Element<ElementType::kBfloat16>::narrow(static_cast<float>(value));
      break;
    case ElementType::kFloat16:
      static_cast<unsigned short*>(operand.data)[at] =
          Element<ElementType::kFloat16>::narrow(static_cast<float>(value));
      break;
    case ElementType::kAbsent:
      break;
  }
}

// Rounds a value to the type of an operand.
template <class T>
struct RoundAs {
  const ElementType* types;

  template <int kOperand>
  T to(T value) const {
    switch (types[kOperand]) {
      case ElementType::kBfloat16:
        return static_cast<T>(Element<ElementType::kBfloat16>::widen(
            Element<ElementType::kBfloat16>::narrow(static_cast<float>(value))));
      case ElementType::kFloat16:
        return static_cast<T>(Element<ElementType::kFloat16>::widen(
            Element<ElementType::kFloat16>::narrow(static_cast<float>(value))));
      default:
        return value;
    }
  }
};

// The balanced binary tree over the terms, from the root down: the left subtree of each node is the
// largest power of two that leaves at least one term for the right subtree.
template <class T>
T sum_tree(std::span<const T> terms) {
  if (terms.size() == 1) return terms.front();
  const std::size_t left = std::bit_ceil(terms.size()) / 2;
  return sum_tree(terms.first(left)) + sum_tree(terms.subspan(left));
}

// Sequentially, starting with the first term.
template <class T>
T sum_in_order(std::span<const T> terms) {
  T sum = terms.front();
  for (const T term : terms.subspan(1)) sum = sum + term;
  return sum;
}

// The sum of one channel from its terms, split into the leaves of its tree: per column, a leaf is a
// run of rows; per row, it is a tree over the columns of one row.
template <class T>
T sum_channel(const std::vector<std::vector<T>>& leaves, Broadcast broadcast) {
  std::vector<T> nodes;
  for (const auto& leaf : leaves) {
    const std::span<const T> terms(leaf);
    nodes.push_back(broadcast == Broadcast::kPerRow ? sum_tree(terms) : sum_in_order(terms));
  }
  return nodes.empty() ? T(0) : T(0) + sum_tree(std::span<const T>(nodes));
}

template <template <class> class Formula, class T>
void evaluate_as(const KernelArguments& arguments, const Variant& variant) {
  using F = Formula<T>;
  constexpr std::size_t kInputs = F::kMatrixInputs + F::kBroadcastInputs;
  constexpr std::size_t kStored = F::kOutputs - F::kSums;
  constexpr std::size_t kSums = F::kSums;
  const F formula(arguments.scalars);
  const auto channels =
      static_cast<std::size_t>(variant.has_sum() ? arguments.sizes[kChannels] : 0);
  // Indexed by channel, sum and leaf.
  std::vector<std::vector<std::vector<T>>> terms(channels * kSums);
  for (long long row = 0; row < arguments.sizes[kRows]; ++row) {
    for (long long col = 0; col < arguments.sizes[kCols]; ++col) {
      const long long channel =
          variant.broadcast == Broadcast::kPerRow ? row % arguments.sizes[kChannels] : col;
      T input[kInputs];
      T output[F::kOutputs];
      for (std::size_t i = 0; i < kInputs; ++i) {
        const bool is_matrix = i < F::kMatrixInputs;
        input[i] = load_element<T>(arguments.operands[i], variant.types[i], is_matrix ? row : 0,
                                   is_matrix ? col : channel);
      }
      evaluate_formula(formula, input, input + F::kMatrixInputs, output,
                       RoundAs<T>{variant.types.data()});
      for (std::size_t i = 0; i < kStored; ++i) {
        store_element<T>(arguments.operands[kInputs + i], variant.types[kInputs + i], row, col,
                         output[i]);
      }
      if (channels == 0) continue;
      const bool begins_leaf =
          variant.broadcast == Broadcast::kPerRow ? col == 0 : row % kRunLength == 0;
      for (std::size_t s = 0; s < kSums; ++s) {
        auto& leaves = terms[static_cast<std::size_t>(channel) * kSums + s];
        if (begins_leaf) leaves.emplace_back();
        leaves.back().push_back(output[kStored + s]);
      }
    }
  }
  for (std::size_t i = 0; i < channels; ++i) {
    const auto channel = static_cast<long long>(i);
    T broadcast[F::kBroadcastInputs + 1];
    for (std::size_t j = 0; j < F::kBroadcastInputs; ++j) {
      const std::size_t operand = F::kMatrixInputs + j;
      broadcast[j] =
          load_element<T>(arguments.operands[operand], variant.types[operand], 0, channel);
    }
    T sums[kSums + 1];
    for (std::size_t s = 0; s < kSums; ++s) {
      sums[s] = sum_channel(terms[i * kSums + s], variant.broadcast);
    }
    finish_sums(formula, sums, broadcast);
    for (std::size_t s = 0; s < kSums; ++s) {
      const std::size_t operand = kInputs + kStored + s;
      store_element<T>(arguments.operands[operand], variant.types[operand], 0, channel, sums[s]);
    }
  }
}

template <template <class> class Formula>
void evaluate_reference(const KernelArguments& arguments, const Variant& variant) {
  if (compute_type(variant) == ElementType::kFloat64) {
    evaluate_as<Formula, double>(arguments, variant);
  } else {
    evaluate_as<Formula, float>(arguments, variant);
  }
}

}  // namespace dorajit::kernels
