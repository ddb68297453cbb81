// The reference evaluation of an elementwise formula: plain loops, types looked up at run time.
#pragma once

#include <cstddef>
#include <span>

#include "kernel_templates/arguments.h"
#include "kernel_templates/cpu/elements.h"
#include "kernel_templates/element_type.h"

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
  }
}

template <template <class> class Formula, class T>
void evaluate_elementwise(const KernelArguments& arguments, std::span<const ElementType> types) {
  using F = Formula<T>;
  constexpr std::size_t kInputs = F::kMatrixInputs + F::kColumnInputs;
  const F formula(arguments.scalars);
  for (long long row = 0; row < arguments.num_rows; ++row) {
    for (long long col = 0; col < arguments.num_cols; ++col) {
      T input[kInputs];
      T output[F::kOutputs];
      for (std::size_t i = 0; i < kInputs; ++i) {
        input[i] = load_element<T>(arguments.operands[i], types[i], row, col);
      }
      formula(input, input + F::kMatrixInputs, output);
      for (std::size_t i = 0; i < F::kOutputs; ++i) {
        store_element<T>(arguments.operands[kInputs + i], types[kInputs + i], row, col, output[i]);
      }
    }
  }
}

template <template <class> class Formula>
void elementwise_reference(const KernelArguments& arguments, std::span<const ElementType> types) {
  for (const ElementType type : types) {
    if (type == ElementType::kFloat64)
      return evaluate_elementwise<Formula, double>(arguments, types);
  }
  evaluate_elementwise<Formula, float>(arguments, types);
}

}  // namespace dorajit::kernels
