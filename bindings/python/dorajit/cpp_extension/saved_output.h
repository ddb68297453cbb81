// The gradient of the magnitude from the output instead of inner. The C++ version of
// dorajit/layers/saved_output.py, with the same names and formulas.
#pragma once

#include <torch/csrc/autograd/custom_function.h>

#include <cstdint>
#include <limits>

#include "call.h"

namespace dorajit::python::saved_output {

using torch::autograd::AutogradContext;

inline constexpr const char* kCounter = "output's version counter";
inline constexpr const char* kVersion = "output's version";

// Makes the node tell whether the output was written, without keeping its elements alive.
inline void watch(AutogradContext& ctx, const Tensor& out) {
  const Tensor counter = at::empty({0}, out.options());
  torch::autograd::impl::set_version_counter(counter, torch::autograd::impl::version_counter(out));
  ctx.saved_data[kCounter] = counter;
  ctx.saved_data[kVersion] = static_cast<std::int64_t>(out._version());
}

// Whether the output does not have the elements of the forward pass any longer; called in each
// backward pass.
inline bool is_written(AutogradContext& ctx, const Tensor& output, const Tensor& d_out) {
  // Tensors that compiled autograd traces have other versions.
  if (!is_plain(output)) return true;
  // The gradient was written over it, and stays there for further passes.
  if (is_plain(d_out) && d_out.is_alias_of(output)) ctx.saved_data[kVersion] = std::int64_t{-1};
  return static_cast<std::int64_t>(ctx.saved_data[kCounter].toTensor()._version()) !=
         ctx.saved_data[kVersion].toInt();
}

// By what the sum of out * d_out is divided, in the type of `like`: the magnitude, and for a
// magnitude of 0, whose sum is 0, a number that is not 0.
inline Tensor divisor(const Tensor& magnitude, const Tensor& like) {
  const double least = magnitude.scalar_type() == at::kDouble
                           ? std::numeric_limits<double>::min()
                           : double{std::numeric_limits<float>::min()};
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  Tensor made = at::empty_like(like);
  at::add_out(made, magnitude, at::scalar_tensor(least, at::kDouble), 1);
  return made;
}

// inner, computed again: without autograd, and in the element types of the operands.
inline Tensor inner(const Tensor& x, const Tensor& weight, const Tensor& a, const Tensor& b,
                    double scale) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast{c10::autocast_dispatch_keyset};
  return at::add(at::linear(x, weight), at::linear(at::linear(x, a), b), scale);
}

}  // namespace dorajit::python::saved_output
