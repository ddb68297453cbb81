// The composition, by itself and over a base result, and its node of autograd's graph: what
// dorajit/autograd.py does in Python.
#pragma once

#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/utils/pybind.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "call.h"

namespace dorajit::python {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Of autograd.py: backward, wherever this may not do it. Set by configure() and never dropped.
inline PyObject* differentiate = nullptr;

// What is composed.
struct Operands {
  bool is_residual;
  double scale;
  Tensor lora;
  Tensor base;  // or the result
  Tensor gain;
  Tensor bias;  // undefined: none
};

// A forward pass.
struct Composed {
  Operands operands;
  bool is_in_place;  // out is lora
  bool is_node;      // it is followed by a backward pass
  Tensor out{};      // undefined until compute() has made it
  Tensor inner{};    // as out; undefined unless gain needs a gradient
};

// Whether a kernel did it. The caller holds no GIL: memory may have to be waited for.
inline bool compute(Composed& call) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const auto& [is_residual, scale, lora, base, gain, bias] = call.operands;
  const bool keeps_inner = call.is_node && gain.requires_grad();
  Call kernel(is_residual   ? operations.compose_residual
              : keeps_inner ? operations.compose_inner
                            : operations.compose,
              scale);
  if (!kernel.add(lora) || !kernel.add(base) || !kernel.add(gain)) return false;
  // Of two types the sum would have the wider.
  if (is_residual && lora.scalar_type() != base.scalar_type()) return false;
  if (lora.sizes() != base.sizes()) return false;
  Tensor channels = bias;
  if (is_residual) {
    if (bias.defined() && is_plain(bias) && bias.dim() != gain.dim() &&
        bias.numel() == gain.numel()) {
      channels = bias.reshape(gain.sizes());
    }
    if (!kernel.add(channels)) return false;
  }
  call.out = call.is_in_place ? lora : at::empty_like(lora);
  if (keeps_inner) call.inner = at::empty_like(lora);
  kernel.add_result(call.out);
  if (is_residual || keeps_inner) kernel.add_result(call.inner);
  return kernel.run(lora.device());
}

// What a backward pass starts from.
struct Kept {
  bool is_residual;
  double scale;
  Tensor gain;
  Tensor inner;                // undefined unless gain's gradient is wanted
  std::array<bool, 3> wanted;  // of lora, base and gain
  at::ScalarType lora_type;
  at::ScalarType base_type;
};

using Gradients = std::array<Tensor, 3>;

// The gradients through out by a kernel, undefined where none is wanted; nothing if Python has to
// see to it.
inline std::optional<Gradients> try_to_differentiate(const Tensor& d_out, const Kept& kept) {
  Call kernel(kept.is_residual ? operations.residual_backward : operations.backward, kept.scale);
  if (!kernel.add(d_out) || !kernel.add(kept.wanted[2] ? kept.inner : Tensor()) ||
      !kernel.add(kept.gain)) {
    return {};
  }
  if (kept.wanted[2] && (!kept.inner.defined() || d_out.sizes() != kept.inner.sizes())) return {};
  const at::ScalarType lora_type = kept.is_residual ? kept.lora_type : d_out.scalar_type();
  Gradients gradients;
  if (kept.wanted[0]) gradients[0] = at::empty_like(d_out, d_out.options().dtype(lora_type));
  if (kept.wanted[1]) gradients[1] = at::empty_like(d_out, d_out.options().dtype(kept.base_type));
  if (kept.wanted[2]) gradients[2] = at::empty_like(kept.gain);
  for (const Tensor& one : gradients) {
    if (!kernel.add_result(one)) return {};
  }
  Tensor workspace;
  if (kept.wanted[2]) {
    const std::int64_t bytes = kernel.workspace_bytes();
    if (bytes < 0) return {};
    if (bytes > 0) {
      workspace = at::empty({bytes}, d_out.options().dtype(at::kByte));
      kernel.set_workspace(workspace);
    }
  }
  if (!kernel.run(d_out.device())) return {};
  return gradients;
}

// The same through out and inner, by autograd.py; either may be undefined.
inline Gradients differentiate_in_python(const Tensor& d_out, const Tensor& d_inner,
                                         const Kept& kept) {
  namespace py = pybind11;
  const py::gil_scoped_acquire gil;
  const auto type = [](at::ScalarType one) {
    return py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(torch::getTHPDtype(one)));
  };
  try {
    const py::tuple found = py::handle(differentiate)(
        kept.is_residual, d_out, d_inner, py::make_tuple(kept.gain, kept.inner), kept.scale,
        py::make_tuple(kept.wanted[0], kept.wanted[1], kept.wanted[2]), type(kept.lora_type),
        type(kept.base_type));
    Gradients gradients;
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      if (!found[i].is_none()) gradients[i] = found[i].cast<Tensor>();
    }
    return gradients;
  } catch (py::error_already_set& error) {
    error.restore();
    throw_python_error();
  }
}

struct Composition : torch::autograd::Function<Composition> {
  // Compiled autograd may trace backward: tensors without memory go to Python, operation by
  // operation.
  static constexpr bool is_traceable = true;

  static variable_list forward(AutogradContext* ctx, const Tensor& lora, const Tensor& base,
                               const Tensor& gain, const Composed& call) {
    ctx->set_materialize_grads(false);
    ctx->save_for_backward({gain, call.inner});
    ctx->saved_data["scale"] = call.operands.scale;
    ctx->saved_data["is_residual"] = call.operands.is_residual;
    ctx->saved_data["lora_type"] = static_cast<std::int64_t>(lora.scalar_type());
    ctx->saved_data["base_type"] = static_cast<std::int64_t>(base.scalar_type());
    // Not what a backward pass asks for, which would be other problems, to be tuned and compiled.
    ctx->saved_data["wants_lora"] = lora.requires_grad();
    ctx->saved_data["wants_base"] = base.requires_grad();
    ctx->saved_data["wants_gain"] = gain.requires_grad();
    // inner is an output as well, so that a graph of the backward pass leads back through it.
    if (call.inner.defined()) return {call.out, call.inner};
    return {call.out};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const variable_list saved = ctx->get_saved_variables();
    const auto type = [&](const char* name) {
      return static_cast<at::ScalarType>(ctx->saved_data[name].toInt());
    };
    const auto is = [&](const char* name) { return ctx->saved_data[name].toBool(); };
    const Kept kept = {.is_residual = is("is_residual"),
                       .scale = ctx->saved_data["scale"].toDouble(),
                       .gain = saved[0],
                       .inner = saved[1],
                       .wanted = {is("wants_lora"), is("wants_base"), is("wants_gain")},
                       .lora_type = type("lora_type"),
                       .base_type = type("base_type")};
    const Tensor& d_out = gradients[0];
    const Tensor d_inner = gradients.size() > 1 ? gradients[1] : Tensor();
    std::optional<Gradients> found;
    const bool may_be_direct = d_out.defined() && !d_inner.defined() &&
                               route({&d_out, &kept.gain, &kept.inner}) == Route::kLaunch;
    if (may_be_direct) found = try_to_differentiate(d_out, kept);
    if (!found) found = differentiate_in_python(d_out, d_inner, kept);
    return {(*found)[0], (*found)[1], (*found)[2], Tensor()};
  }
};

}  // namespace dorajit::python
