// A second implementation of every operation and of the order of its sums, written from
// docs/numerics.md, independent of the kernels: the reference for the kernels.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "kernel_templates/broadcast.h"
#include "kernel_templates/registry.h"

namespace dorajit::tests {

template <class T>
using PlainInputs = std::array<T, 7>;  // in the registry's order

template <class T>
struct PlainOutputs {
  std::array<T, 3> stored{};  // in the order of the op's outputs
  std::array<T, 2> terms{};   // the element's term of each sum
};

// Rounds a value to the type of an operand.
template <class T>
using PlainRounding = std::function<T(std::size_t operand, T value)>;

// The results of an operation for one element. The activations of gated MLPs are those of
// math/activations.h, which activations_test.cc compares with the standard library's functions.
template <class T>
PlainOutputs<T> plain_evaluate(std::string_view op, const PlainInputs<T>& inputs, double scale,
                               const PlainRounding<T>& round);

// The sum of every channel; terms are stored row by row.
template <class T>
std::vector<T> plain_sums(const std::vector<T>& terms, std::int64_t rows, std::int64_t cols,
                          std::int64_t channels, kernels::Broadcast broadcast);

// The output of a channel with this sum, number `index` of the operation's sums.
template <class T>
T plain_total(std::string_view op, std::size_t index, T sum, const PlainInputs<T>& inputs);

}  // namespace dorajit::tests
