// A linear layer with a DoRA adapter: its launches and its autograd node. The C++ version of
// dorajit/layers/linear.py, with the same names and formulas.
#pragma once

#include <ATen/SavedTensorHooks.h>
#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/utils/pybind.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "call.h"
#include "saved_output.h"

namespace dorajit::python {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The backward pass of linear.py, for cases that are left to Python. Set by configure() and never
// released.
inline PyObject* differentiate = nullptr;
// recomputation.py's function of this name. Set by configure() and never released.
inline PyObject* is_under_other_hooks = nullptr;

// The operands of a forward pass; x, the weight and the factors have the same element type.
struct LinearOperands {
  Tensor x;       // [..., in]
  Tensor weight;  // [out, in]
  Tensor a;       // [rank, in]
  Tensor b;       // [out, rank]
  Tensor gain;    // [out]
  Tensor bias;    // [out]; undefined: no bias
  double scale;
  bool is_one_launch;  // use compose_low_rank
};

// The further data of the node.
struct LinearNode {
  Tensor divisor;            // [out]
  bool has_float_products;   // float32 gradients of 16-bit products are not rounded to 16 bits
  std::array<bool, 3> held;  // whether the weight, A and B are parameters
  bool saves_output;         // instead of inner
};

// The results of the launches.
struct LinearResult {
  Tensor out;
  Tensor low;    // x A^T
  Tensor inner;  // undefined unless it is kept
};

// Runs operations below autograd and autocast, so that types do not change.
struct PlainOperations {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  c10::impl::ExcludeDispatchKeyGuard no_autocast{c10::autocast_dispatch_keyset};
};

// The result, or nothing if Python must handle the call. The caller must not hold the GIL.
inline std::optional<LinearResult> compute_linear(const LinearOperands& of, bool keeps_inner) {
  const PlainOperations plain;
  const std::optional<Tensor> bias = of.bias.defined() ? std::optional(of.bias) : std::nullopt;
  LinearResult made;
  made.out = at::linear(of.x, of.weight, bias);
  made.low = at::linear(of.x, of.a);
  if (of.is_one_launch) {
    if (keeps_inner) made.inner = at::empty_like(made.out);
    static NativeOperation* const compose_low_rank = calls->find("compose_low_rank");
    if (!launch(compose_low_rank, of.scale,
                {&made.low, &of.b, &made.out, &of.gain, &of.bias, &made.out, &made.inner})) {
      return {};
    }
    return made;
  }
  const Tensor lora = at::linear(made.low, of.b);
  if (keeps_inner) made.inner = lora;
  static NativeOperation* const compose_residual = calls->find("compose_residual");
  if (!launch(compose_residual, of.scale,
              {&lora, &made.out, &of.gain, &of.bias, &made.out, &made.inner})) {
    return {};
  }
  return made;
}

// The input of a backward pass.
struct LinearSaved {
  double scale;
  bool has_float_products;
  std::array<bool, 4> wanted;           // of x, A, B and the magnitude
  Tensor x, low, inner, gain, divisor;  // undefined where no gradient needs it
  Tensor weight, a, b;
  std::array<at::ScalarType, 3> types;  // of the gradients of A, B and the magnitude
};

using LinearGradients = std::array<Tensor, 4>;

inline Tensor rows_of(const Tensor& tensor) {
  return tensor.dim() == 2 ? tensor : tensor.reshape({-1, tensor.size(-1)});
}

// factor * left @ right in float32, for 16-bit matrices, if PyTorch has such a product (2.8 and
// newer); a template, because older versions do not have the function.
template <class Matrix>
std::optional<Matrix> float_product(const Matrix& left, const Matrix& right, double factor) {
  if constexpr (requires { at::addmm(left, left, right, at::kFloat, 0, factor); }) {
    const Matrix total = at::empty({left.size(0), right.size(1)}, left.options().dtype(at::kFloat));
    return at::addmm(total, left, right, at::kFloat, 0, factor);
  } else {
    return {};
  }
}

// factor * left @ right in the element type; `like` has the product's shape and left's type.
inline Tensor product(const Tensor& left, const Tensor& right, double factor, const Tensor& like,
                      at::ScalarType type, bool has_float_products) {
  if (type == at::kFloat && left.scalar_type() != at::kFloat && has_float_products) {
    if (const auto made = float_product(left, right, factor)) return *made;
  }
  return at::addmm(like, left, right, 0, factor).to(type);
}

// The gradients, undefined where they are not wanted; nothing if Python must handle the call.
inline std::optional<LinearGradients> try_to_differentiate(const Tensor& d_out,
                                                           const LinearSaved& saved) {
  const PlainOperations plain;
  const auto [of_x, of_a, of_b, of_magnitude] = saved.wanted;
  const bool of_any_product = of_x || of_a || of_b;
  if (d_out.scalar_type() != saved.a.scalar_type()) return {};
  if (of_magnitude && d_out.sizes() != saved.inner.sizes()) return {};
  Tensor u;
  LinearGradients found;
  auto& [d_x, d_a, d_b, d_magnitude] = found;
  if (of_any_product) u = at::empty_like(d_out);
  if (of_magnitude) {
    d_magnitude = at::empty_like(saved.gain, saved.gain.options().dtype(saved.types[2]));
  }
  const Tensor left_out;  // d_lora, which u replaces
  static NativeOperation* const magnitude_backward = calls->find("magnitude_backward");
  if (!launch(magnitude_backward, saved.scale,
              {&d_out, &saved.inner, &saved.gain, &saved.divisor, &left_out, &u, &d_magnitude})) {
    return {};
  }
  if (of_any_product) {
    const Tensor rows = rows_of(u);
    const Tensor through = of_x || of_a ? at::mm(rows, saved.b) : Tensor();
    if (of_b) {
      d_b = product(rows.t(), rows_of(saved.low), saved.scale, saved.b, saved.types[1],
                    saved.has_float_products);
    }
    if (of_a) {
      d_a = product(through.t(), rows_of(saved.x), saved.scale, saved.a, saved.types[0],
                    saved.has_float_products);
    }
    if (of_x) {
      d_x = at::mm(rows, saved.weight);
      d_x.addmm_(through, saved.a, 1, saved.scale);
      if (d_out.dim() != 2) {
        std::vector<std::int64_t> shape = d_out.sizes().vec();
        shape.back() = saved.weight.size(1);
        d_x = d_x.view(shape);
      }
    }
  }
  return found;
}

// The gradients by linear.py; `trained` are A, B and the magnitude.
inline LinearGradients differentiate_in_python(const Tensor& d_out, const LinearSaved& saved,
                                               const std::array<Tensor, 3>& trained) {
  namespace py = pybind11;
  const py::gil_scoped_acquire gil;
  const auto type = py::reinterpret_borrow<py::object>(
      reinterpret_cast<PyObject*>(torch::getTHPDtype(saved.a.scalar_type())));
  try {
    const auto& [of_x, of_a, of_b, of_magnitude] = saved.wanted;
    const py::tuple found = py::handle(differentiate)(
        py::make_tuple(of_x, of_a, of_b, of_magnitude), d_out,
        py::make_tuple(saved.x, saved.weight, saved.a, saved.b, saved.low, saved.inner, saved.gain,
                       saved.divisor),
        py::make_tuple(trained[0], trained[1], trained[2]), saved.scale, type);
    LinearGradients gradients;
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      if (!found[i].is_none()) gradients[i] = found[i].cast<Tensor>();
    }
    return gradients;
  } catch (py::error_already_set& error) {
    error.restore();
    throw_python_error();
  }
}

inline constexpr std::array<const char*, 3> kNames = {"weight", "lora_A", "lora_B"};
inline constexpr std::array<const char*, 3> kHeld = {"held weight", "held A", "held B"};
inline constexpr std::array<const char*, 3> kVersions = {"weight's version", "A's version",
                                                         "B's version"};

// A layer's weight, A and B.
using Weights = std::array<Tensor, 3>;

// Whether saved tensors are passed to hooks that are not those of a checkpoint, and so may be
// stored as copies. The caller must hold the GIL.
inline bool are_copies_possible() {
  if (at::SavedTensorDefaultHooks::get_tls_state().stack.empty()) return false;
  return pybind11::handle(is_under_other_hooks)().cast<bool>();
}

// Holds references to those weights that are parameters, which live as long as their module, and
// returns the others, which the node has to save; undefined in the places of those that are held. A
// checkpoint calls two hooks for each saved tensor, and none for those that are held. Other hooks
// may store copies, which later writes do not change, so under them nothing is held.
inline variable_list hold(AutogradContext& ctx, const Weights& weights,
                          const std::array<bool, 3>& is_held) {
  const bool are_saved = are_copies_possible();
  // Under a checkpoint's hooks versions are not compared: it runs the forward pass again with the
  // present weights.
  const bool are_compared = at::SavedTensorDefaultHooks::get_tls_state().stack.empty();
  variable_list others(weights.size());
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (are_saved || !is_held[i]) {
      others[i] = weights[i];
      continue;
    }
    ctx.saved_data[kHeld[i]] = weights[i];
    if (are_compared) {
      ctx.saved_data[kVersions[i]] = static_cast<std::int64_t>(weights[i]._version());
    }
  }
  return others;
}

// All weights in their order; `saved` begins with those that are not held. Throws if a held one,
// whose elements the gradients need, was written since the forward pass, as autograd does for saved
// tensors.
inline Weights weights_of(AutogradContext& ctx, const variable_list& saved,
                          const std::array<bool, 3>& is_needed) {
  Weights found;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto held = ctx.saved_data.find(kHeld[i]);
    if (held == ctx.saved_data.end()) {
      found[i] = saved[i];
      continue;
    }
    found[i] = held->second.toTensor();
    const auto version = ctx.saved_data.find(kVersions[i]);
    // Tensors that compiled autograd traces have other versions.
    if (!is_needed[i] || version == ctx.saved_data.end() || !is_plain(found[i])) continue;
    const auto now = static_cast<std::int64_t>(found[i]._version());
    TORCH_CHECK(now == version->second.toInt(), "dora_linear: argument `", kNames[i],
                "`, which its gradients need, was modified by an inplace operation: it is at "
                "version ",
                now, ", expected is version ", version->second.toInt(),
                "; write to it after the backward pass, or to a copy");
  }
  return found;
}

struct DoraLinear : torch::autograd::Function<DoraLinear> {
  // Compiled autograd may trace backward: tensors without memory go to Python, whose operations are
  // traced.
  static constexpr bool is_traceable = true;

  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& lora_A,
                        const Tensor& lora_B, const Tensor& magnitude, const LinearOperands& of,
                        const LinearNode& node, const LinearResult& made) {
    // Wanted gradients are fixed here, not by each backward pass: other subsets would be other
    // problems, which have to be compiled and tuned.
    const bool of_x = x.requires_grad();
    const bool of_a = lora_A.requires_grad();
    const bool of_b = lora_B.requires_grad();
    const bool of_magnitude = magnitude.requires_grad();
    // Second-order gradients of any two of them need x.
    const bool of_several = of_x + of_a + of_b + of_magnitude > 1;
    ctx->set_materialize_grads(false);
    variable_list saved = hold(*ctx, {of.weight, of.a, of.b}, node.held);
    Tensor inner = made.inner;
    Tensor of_output;
    if (node.saves_output) {
      // Autograd raises an error for writes to a tensor that shares the version counter.
      inner = made.out.variable_data();
      of_output = saved_output::divisor(magnitude, node.divisor);
      saved_output::watch(*ctx, made.out);
    }
    // of_output comes before the matrix, so that a checkpoint that is run again without it raises
    // an error.
    for (const Tensor& one : {of_a || of_several ? x : Tensor(), of_b ? made.low : Tensor(),
                              of_output, inner, of.gain, of_magnitude ? node.divisor : Tensor()}) {
      saved.push_back(one);
    }
    ctx->save_for_backward(std::move(saved));
    ctx->saved_data["scale"] = of.scale;
    ctx->saved_data["has_float_products"] = node.has_float_products;
    ctx->saved_data["wanted"] =
        static_cast<std::int64_t>(of_x | of_a << 1 | of_b << 2 | of_magnitude << 3);
    // Second-order gradients lead back to these.
    ctx->saved_data["lora_A"] = lora_A;
    ctx->saved_data["lora_B"] = lora_B;
    ctx->saved_data["magnitude"] = magnitude;
    return made.out;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const Tensor& d_out = gradients[0];
    if (!d_out.defined()) return variable_list(7);
    const bool is_second_order = c10::GradMode::is_enabled();
    const variable_list found = ctx->get_saved_variables();
    const std::int64_t wanted = ctx->saved_data["wanted"].toInt();
    const bool of_x = (wanted & 1) != 0;
    const bool of_a = (wanted & 2) != 0;
    const Tensor& of_output = found[5];
    const Tensor& output = found[6];
    // Second-order gradients compute inner from the inputs in any case.
    const bool derives = of_output.defined() && !is_second_order;
    const bool is_lost = derives && saved_output::is_written(*ctx, output, d_out);
    const bool of_all = is_second_order || is_lost;
    const auto weights =
        weights_of(*ctx, found, {of_x || of_all, of_x || of_all, of_x || of_a || of_all});
    const std::array<Tensor, 3> trained = {ctx->saved_data["lora_A"].toTensor(),
                                           ctx->saved_data["lora_B"].toTensor(),
                                           ctx->saved_data["magnitude"].toTensor()};
    const LinearSaved saved = {
        .scale = ctx->saved_data["scale"].toDouble(),
        .has_float_products = ctx->saved_data["has_float_products"].toBool(),
        .wanted = {of_x, of_a, (wanted & 4) != 0, (wanted & 8) != 0},
        .x = found[3],
        .low = found[4],
        .inner = is_lost ? saved_output::inner(found[3], weights[0], weights[1], weights[2],
                                               ctx->saved_data["scale"].toDouble())
                         : output,
        .gain = found[7],
        .divisor = derives && !is_lost ? of_output : found[8],
        .weight = weights[0],
        .a = weights[1],
        .b = weights[2],
        .types = {trained[0].scalar_type(), trained[1].scalar_type(), trained[2].scalar_type()}};
    std::optional<LinearGradients> made;
    const bool may_be_direct = !is_second_order && is_plain(d_out) && !is_seen(d_out);
    if (may_be_direct) made = try_to_differentiate(d_out, saved);
    if (!made) made = differentiate_in_python(d_out, saved, trained);
    auto& [d_x, d_a, d_b, d_magnitude] = *made;
    return {d_x, d_a, d_b, d_magnitude, Tensor(), Tensor(), Tensor()};
  }
};

}  // namespace dorajit::python
