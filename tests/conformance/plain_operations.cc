#include "tests/conformance/plain_operations.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "kernel_templates/math/activations.h"

namespace dorajit::tests {
namespace {

// Each operation is stored to a volatile, so that no compiler contracts or reorders the reference.
template <class T>
T times(T a, T b) {
  volatile T product = a * b;
  return product;
}

template <class T>
T plus(T a, T b) {
  volatile T sum = a + b;
  return sum;
}

template <class T>
T compose(T lora, T base, T gain, T scale) {
  const T scaled = times(scale, lora);
  const T weight = plus(gain, T(-1));
  return plus(times(weight, base), times(gain, scaled));
}

template <class T>
T norm(T weight, T cross, T product, double scale) {
  const T with_cross = plus(weight, times(static_cast<T>(2 * scale), cross));
  const T squared = plus(with_cross, times(static_cast<T>(scale * scale), product));
  if (squared < T(0)) return T(0);
  // The square root of a float in double, rounded once more, is the nearest float.
  return static_cast<T>(std::sqrt(static_cast<double>(squared)));
}

// Adds neighbours level by level; an element without a neighbour moves up unchanged.
template <class T>
std::optional<T> tree(std::vector<T> nodes) {
  if (nodes.empty()) return std::nullopt;
  while (nodes.size() > 1) {
    std::vector<T> above;
    for (std::size_t i = 0; i < nodes.size(); i += 2) {
      above.push_back(i + 1 < nodes.size() ? plus(nodes[i], nodes[i + 1]) : nodes[i]);
    }
    nodes = std::move(above);
  }
  return nodes.front();
}

constexpr std::int64_t kRowsOfARun = 8;

template <class T>
T activation(std::string_view op, T x) {
  if (op.starts_with("gated_silu")) return kernels::Silu::value(x);
  if (op.starts_with("gated_gelu_tanh")) return kernels::GeluTanh::value(x);
  return kernels::Gelu::value(x);
}

template <class T>
T derivative(std::string_view op, T x) {
  if (op.starts_with("gated_silu")) return kernels::Silu::derivative(x);
  if (op.starts_with("gated_gelu_tanh")) return kernels::GeluTanh::derivative(x);
  return kernels::Gelu::derivative(x);
}

}  // namespace

template <class T>
PlainOutputs<T> plain_evaluate(std::string_view op, const PlainInputs<T>& inputs, double scale,
                               const PlainRounding<T>& round) {
  const auto rounded_scale = static_cast<T>(scale);
  const auto [first, second, third, fourth, fifth, sixth, seventh] = inputs;
  if (op == "compose") {
    return {.stored = {compose(first, second, third, rounded_scale)}};
  }
  if (op == "compose_inner") {
    return {.stored = {compose(first, second, third, rounded_scale),
                       plus(times(rounded_scale, first), second)}};
  }
  if (op == "backward") {
    return {.stored = {times(times(third, rounded_scale), first), times(plus(third, T(-1)), first)},
            .terms = {times(second, first)}};
  }
  if (op == "norm_assembly") {
    return {.stored = {norm(first, second, third, scale)}};
  }
  if (op == "compose_residual") {
    const T base = plus(second, -fourth);
    return {.stored = {plus(second, compose(first, base, third, rounded_scale)),
                       plus(times(rounded_scale, first), base)}};
  }
  if (op == "residual_backward" || op == "magnitude_backward") {
    return {.stored = {times(times(third, rounded_scale), first), times(third, first)},
            .terms = {times(second, first)}};
  }
  if (op.starts_with("gated_") && op.ends_with("_backward")) {
    const T activated = round(1, activation(op, second));
    const T d_gate = times(times(first, third), derivative(op, second));
    const T d_up = times(first, activated);
    return {.stored = {times(activated, third), times(fourth, d_gate), times(fifth, d_up)},
            .terms = {times(d_gate, second), times(d_up, third)}};
  }
  if (op.starts_with("gated_")) return {.stored = {times(round(0, activation(op, first)), second)}};
  return {};
}

template <class T>
std::vector<T> plain_sums(const std::vector<T>& terms, std::int64_t rows, std::int64_t cols,
                          std::int64_t channels, kernels::Broadcast broadcast) {
  const auto term = [&](std::int64_t row, std::int64_t col) {
    return terms[static_cast<std::size_t>(row * cols + col)];
  };
  std::vector<T> sums;
  for (std::int64_t channel = 0; channel < channels; ++channel) {
    std::vector<T> nodes;
    if (broadcast == kernels::Broadcast::kPerColumn) {
      for (std::int64_t first = 0; first < rows; first += kRowsOfARun) {
        T run = term(first, channel);
        for (std::int64_t row = first + 1; row < std::min(rows, first + kRowsOfARun); ++row) {
          run = plus(run, term(row, channel));
        }
        nodes.push_back(run);
      }
    } else {
      for (std::int64_t row = channel; row < rows; row += channels) {
        std::vector<T> columns;
        for (std::int64_t col = 0; col < cols; ++col) columns.push_back(term(row, col));
        if (const auto sum = tree(std::move(columns))) nodes.push_back(*sum);
      }
    }
    sums.push_back(plus(T(0), tree(std::move(nodes)).value_or(T(0))));
  }
  return sums;
}

template <class T>
T plain_total(std::string_view op, std::size_t index, T sum, const PlainInputs<T>& inputs) {
  volatile T total = sum;
  if (op == "magnitude_backward") total = sum / inputs[3];
  if (op.starts_with("gated_")) {
    const T magnitude = inputs[5 + index];
    total = magnitude == T(0) ? T(0) : sum / magnitude;
  }
  return total;
}

template PlainOutputs<float> plain_evaluate(std::string_view, const PlainInputs<float>&, double,
                                            const PlainRounding<float>&);
template PlainOutputs<double> plain_evaluate(std::string_view, const PlainInputs<double>&, double,
                                             const PlainRounding<double>&);
template std::vector<float> plain_sums(const std::vector<float>&, std::int64_t, std::int64_t,
                                       std::int64_t, kernels::Broadcast);
template std::vector<double> plain_sums(const std::vector<double>&, std::int64_t, std::int64_t,
                                        std::int64_t, kernels::Broadcast);
template float plain_total(std::string_view, std::size_t, float, const PlainInputs<float>&);
template double plain_total(std::string_view, std::size_t, double, const PlainInputs<double>&);

}  // namespace dorajit::tests
