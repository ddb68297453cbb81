// The activation of a gated MLP, a = act(gate) * up, and its backward pass between the products of
// the three layers, whose gains are g = magnitude / divisor:
//
//     d_gate = g_gate * (d_a * up * act'(gate)),    d_up = g_up * (d_a * act(gate)),
//     d_gate_magnitude = (sum of d_gate / g_gate * gate) / gate_magnitude, and so for up
//
// because a layer's output without a bias is g * inner, and the gradient of its magnitude is the
// sum of its own gradient times inner / divisor. act(gate) is rounded to the type of gate, as if it
// were stored; all else is rounded once.
#pragma once

#include "math/activations.h"

namespace dorajit::kernels {

template <class T, class Activation>
struct GatedActivation {
  static constexpr int kMatrixInputs = 2;  // gate, up
  static constexpr int kBroadcastInputs = 0;
  static constexpr int kOutputs = 1;  // out
  static constexpr int kSums = 0;

  DORAJIT_FORMULA explicit GatedActivation(const double*) {}

  template <class Round>
  DORAJIT_FORMULA void operator()(const T* matrix, const T*, T* output, const Round& round) const {
    output[0] = round.template to<0>(Activation::value(matrix[0])) * matrix[1];
  }
};

template <class T, class Activation>
struct GatedActivationBackward {
  static constexpr int kMatrixInputs = 3;     // d_out, gate, up
  static constexpr int kBroadcastInputs = 4;  // gains of gate and up, magnitudes of both
  static constexpr int kOutputs = 5;          // out, d_gate, d_up, d_gate_magnitude, d_up_magnitude
  static constexpr int kSums = 2;             // the last of the outputs

  DORAJIT_FORMULA explicit GatedActivationBackward(const double*) {}

  template <class Round>
  DORAJIT_FORMULA void operator()(const T* matrix, const T* broadcast, T* output,
                                  const Round& round) const {
    const T d_out = matrix[0];
    const T gate = matrix[1];
    const T up = matrix[2];
    const T activated = round.template to<1>(Activation::value(gate));
    const T d_gate = d_out * up * Activation::derivative(gate);
    const T d_up = d_out * activated;
    output[0] = activated * up;
    output[1] = broadcast[0] * d_gate;
    output[2] = broadcast[1] * d_up;
    output[3] = d_gate * gate;
    output[4] = d_up * up;
  }

  // A magnitude of 0 hides `inner`: its gradient is taken for 0.
  DORAJIT_FORMULA void finish(T* sums, const T* broadcast) const {
    DORAJIT_UNROLL
    for (int i = 0; i < kSums; ++i) {
      const T magnitude = broadcast[2 + i];
      sums[i] = magnitude == T(0) ? T(0) : sums[i] / magnitude;
    }
  }
};

template <class T>
using GatedSilu = GatedActivation<T, Silu>;
template <class T>
using GatedGelu = GatedActivation<T, Gelu>;
template <class T>
using GatedGeluTanh = GatedActivation<T, GeluTanh>;
template <class T>
using GatedSiluBackward = GatedActivationBackward<T, Silu>;
template <class T>
using GatedGeluBackward = GatedActivationBackward<T, Gelu>;
template <class T>
using GatedGeluTanhBackward = GatedActivationBackward<T, GeluTanh>;

}  // namespace dorajit::kernels
