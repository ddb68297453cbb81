// The launches of a backward pass of a DoRA linear layer (dorajit/layers/node.py) in one call.
#include "bindings/python/linear_gradients.h"

#include <Python.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>

#include "bindings/python/module_parts.h"

namespace dorajit::python {
namespace {

namespace py = pybind11;

// Empty if something observes the launches or no kernel takes the tensors. `inner` is released
// after its last use, so that its memory can be that of d_x.
std::optional<Gradients> run(Pass& pass) {
  const Products& of = products();
  static NativeOperation& magnitude_backward = operation_named("magnitude_backward");
  static NativeOperation& backward = operation_named("backward");
  PyObject* const scale = pass.scale.ptr();
  if (!is_unobserved(std::array{pass.d_out.ptr(), pass.gain.ptr()}, scale)) return std::nullopt;
  const bool drops_base =
      !pass.dropout.is_none() && part(pass.dropout.ptr(), of.drops_base).ptr() == Py_True;
  py::object v;  // of the base product alone
  if (drops_base && pass.of_x) {
    const py::object of_base = launch(
        backward, std::array{pass.d_out.ptr(), Py_None, pass.gain.ptr(), Py_None, Py_True, Py_None},
        scale);
    if (!of_base) return std::nullopt;
    v = rows_of(PyTuple_GET_ITEM(of_base.ptr(), 1));
  }
  // With v, the gradient of S B^T is asked for, which includes the scale; otherwise u, which is
  // that of both products and does not.
  PyObject* const of_lora = drops_base ? Py_True : Py_None;
  PyObject* const of_both = drops_base ? Py_None : Py_True;
  const py::object made =
      launch(magnitude_backward,
             std::array{pass.d_out.ptr(), pass.inner.ptr(), pass.gain.ptr(), pass.divisor.ptr(),
                        of_lora, of_both, pass.magnitude_type.ptr()},
             scale);
  if (!made) return std::nullopt;
  pass.inner = py::none();
  const py::object d_lora = rows_of(PyTuple_GET_ITEM(made.ptr(), drops_base ? 0 : 1));
  Gradients found = finish(pass, v ? v : d_lora, d_lora, drops_base ? of.one : scale, drops_base);
  found.magnitude = borrowed(PyTuple_GET_ITEM(made.ptr(), 2));
  return found;
}

// What DoraLinear.forward stores as `ctx.kept`, and saves.
enum Kept : Py_ssize_t { kIsFloat, kScale, kHeld, kVersions, kTrained, kBase, kDropout };
enum Saved : Py_ssize_t { kWeight, kA, kB, kX, kLow, kMask, kInner, kGain, kDivisor, kSavedCount };

// (ctx, d_out, otherwise) -> the gradients of DoraLinear's inputs, or None.
PyObject* linear_backward(PyObject*, PyObject* const* arguments, Py_ssize_t count) noexcept {
  if (count != 3) {
    PyErr_Format(PyExc_TypeError, "linear_backward takes 3 arguments, not %zd", count);
    return nullptr;
  }
  return with_python_errors([&]() -> PyObject* {
    const Products& of = products();
    PyObject* const ctx = arguments[0];
    const py::object kept = part(ctx, of.kept);
    const auto kept_one = [&](Kept i) { return PyTuple_GET_ITEM(kept.ptr(), i); };
    const py::object wanted = part(ctx, of.needs_input_grad);
    std::array<bool, 5> is_wanted{};
    for (std::size_t i = 0; i < is_wanted.size(); ++i) {
      is_wanted[i] = PyTuple_GetItem(wanted.ptr(), static_cast<Py_ssize_t>(i)) == Py_True;
    }
    const auto [of_x, of_a, of_b, of_magnitude, of_bias] = is_wanted;
    if (of_bias || !(of_x || of_a || of_b)) return none();
    py::object saved = part(ctx, of.saved_tensors);
    if (!PyTuple_Check(saved.ptr()) || PyTuple_GET_SIZE(saved.ptr()) != kSavedCount) {
      throw std::runtime_error(
          "linear_backward: the saved tensors are not those of a forward pass");
    }
    // Checkpoints give saved tensors once.
    const auto otherwise = [&](const py::object& of_saved) {
      return call(arguments[2], std::array{ctx, arguments[1], of_saved.ptr()}).release().ptr();
    };
    const auto saved_one = [&](Saved i) { return borrowed(PyTuple_GET_ITEM(saved.ptr(), i)); };
    std::array weights = {saved_one(kWeight), saved_one(kA), saved_one(kB)};
    PyObject* const held = kept_one(kHeld);
    PyObject* const versions = kept_one(kVersions);
    for (std::size_t i = 0; held != Py_None && i < weights.size(); ++i) {
      const auto at = static_cast<Py_ssize_t>(i);
      PyObject* const one = PyTuple_GET_ITEM(held, at);
      if (one == Py_None) continue;
      weights[i] = borrowed(one);
      if (versions != Py_None &&
          PyObject_RichCompareBool(part(one, of.version).ptr(), PyTuple_GET_ITEM(versions, at),
                                   Py_EQ) != 1) {
        return otherwise(saved);
      }
    }
    PyObject* const trained = kept_one(kTrained);
    Pass pass{.d_out = borrowed(arguments[1]),
              .x = saved_one(kX),
              .mask = saved_one(kMask),
              .weight = weights[0],
              .a = weights[1],
              .b = weights[2],
              .low = saved_one(kLow),
              .inner = saved_one(kInner),
              .gain = saved_one(kGain),
              .divisor = saved_one(kDivisor),
              .scale = borrowed(kept_one(kScale)),
              .base = borrowed(kept_one(kBase)),
              .dropout = borrowed(kept_one(kDropout)),
              .like_a = of_a ? PyTuple_GET_ITEM(trained, 0) : Py_None,
              .like_b = of_b ? PyTuple_GET_ITEM(trained, 1) : Py_None,
              .of_x = of_x,
              .is_float = kept_one(kIsFloat) == Py_True};
    if (of_magnitude) pass.magnitude_type = part(PyTuple_GET_ITEM(trained, 2), of.dtype);
    saved = py::none();  // under a checkpoint `pass` alone has inner now
    TorchTensor d_out;
    const bool is_matrix = d_out.read(pass.d_out) && d_out.dl().ndim >= 2;  // or a batch of them
    auto found = is_matrix ? run(pass) : std::nullopt;
    if (!found) {
      return otherwise(py::make_tuple(pass.weight, pass.a, pass.b, pass.x, pass.low, pass.mask,
                                      pass.inner, pass.gain, pass.divisor));
    }
    if (of_x) found->x = in_shape_of(found->x, d_out.dl());
    return PyTuple_Pack(6, found->x.ptr(), found->a.ptr(), found->b.ptr(), found->magnitude.ptr(),
                        Py_None, Py_None);
  });
}

}  // namespace

void add_linear_gradients(py::module_& module) {
  static std::array methods = {
      fast_method(
          "linear_backward", linear_backward,
          "linear_backward($module, ctx, d_out, otherwise, /)\n--\n\n"
          "The launches of DoraLinear.backward, for products of one element type: its result. None "
          "if a gradient other than those of x, A, B and the magnitude is wanted. otherwise(ctx, "
          "d_out, saved tensors) if a held weight was written, if something observes the call, or "
          "if no kernel takes the tensors."),
      PyMethodDef{},
  };
  if (PyModule_AddFunctions(module.ptr(), methods.data()) != 0) throw py::error_already_set();
}

}  // namespace dorajit::python
