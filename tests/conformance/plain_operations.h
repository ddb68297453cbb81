// A second implementation of every operation and of the order of its sums, written from
// docs/numerics.md, independent of the kernels: the reference for the kernels.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "kernel_templates/broadcast.h"
#include "kernel_templates/registry.h"

namespace dorajit::tests {

template <class T>
struct PlainOutputs {
  std::array<T, 2> stored{};  // in the order of the op's outputs
  T term{};                   // the element's term of the sum
};

// The results of an operation for one element; inputs are in the registry's order.
template <class T>
PlainOutputs<T> plain_evaluate(std::string_view op, const std::array<T, 4>& inputs, double scale);

// The sum of every channel; terms are stored row by row.
template <class T>
std::vector<T> plain_sums(const std::vector<T>& terms, std::int64_t rows, std::int64_t cols,
                          std::int64_t channels, kernels::Broadcast broadcast);

// The output of a channel with this sum and this fourth input.
template <class T>
T plain_total(std::string_view op, T sum, T fourth);

}  // namespace dorajit::tests
