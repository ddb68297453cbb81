// Every op and the order of its sums written a second time, from docs/numerics.md and without a
// look at the kernels': what the kernels are held against.
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
  T term{};                   // what the element adds to the sum
};

// What an op makes of one element, given its inputs in the registry's order.
template <class T>
PlainOutputs<T> plain_evaluate(std::string_view op, const std::array<T, 4>& inputs, double scale);

// The sum of every channel over terms that lie row by row.
template <class T>
std::vector<T> plain_sums(const std::vector<T>& terms, std::int64_t rows, std::int64_t cols,
                          std::int64_t channels, kernels::Broadcast broadcast);

}  // namespace dorajit::tests
