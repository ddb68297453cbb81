// The launches of a backward pass of a DoRA linear layer (dorajit/layers/node.py) in one call.
#include <Python.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>

#include "bindings/python/eligibility.h"
#include "bindings/python/linear_products.h"
#include "bindings/python/module_parts.h"
#include "bindings/python/positional_function.h"

namespace dorajit::python {
namespace {

namespace py = pybind11;

// The operands, as dorajit.layers.node names them. None: not needed, or not wanted.
struct Pass {
  py::object d_out, x, weight, a, b, low, inner, gain, divisor, scale;
  PyObject* like_a = Py_None;  // of d_A's shape and type
  PyObject* like_b = Py_None;
  py::object magnitude_type = py::none();  // of d_magnitude
  bool of_x = false;
  bool is_float = false;       // d_A and d_B are float32, not rounded to the type of the factors
  bool adds_low_rank = false;  // to d_x
};

// None where a gradient is not wanted. x is a matrix.
struct Gradients {
  py::object x = py::none();
  py::object through = py::none();  // t = u B
  py::object a = py::none();
  py::object b = py::none();
  py::object magnitude = py::none();
};

py::object borrowed(PyObject* one) { return py::reinterpret_borrow<py::object>(one); }

// alpha * left @ right: of left's type, or float32 without rounding to it. `like` has the result's
// shape and type.
py::object product(PyObject* like, PyObject* left, PyObject* right, PyObject* alpha,
                   bool is_float) {
  const Products& of = products();
  if (is_float) {
    return call(of.addmm, std::array{like, left, right, of.zero, alpha, of.float32},
                of.beta_alpha_type);
  }
  return call(of.addmm, std::array{like, left, right, of.zero, alpha}, of.beta_alpha);
}

// Empty if something observes the launches or no kernel takes the tensors. `inner` is released
// after its last use, so that its memory can be that of d_x.
std::optional<Gradients> run(Pass& pass) {
  const Products& of = products();
  static NativeOperation& magnitude_backward = operation_named("magnitude_backward");
  const std::array observed = {pass.d_out.ptr(), pass.gain.ptr()};
  PyObject* const scale = pass.scale.ptr();
  const int seen = who_sees(observed, std::span(&scale, 1));
  if (seen < 0) throw py::error_already_set();
  if (seen != kNobody) return std::nullopt;
  const py::object made =
      launch(magnitude_backward,
             std::array{pass.d_out.ptr(), pass.inner.ptr(), pass.gain.ptr(), pass.divisor.ptr(),
                        Py_None, Py_True, pass.magnitude_type.ptr()},
             scale);
  if (!made) return std::nullopt;
  pass.inner = py::none();
  Gradients found;
  const py::object u = rows_of(PyTuple_GET_ITEM(made.ptr(), 1));
  found.magnitude = borrowed(PyTuple_GET_ITEM(made.ptr(), 2));
  if (pass.of_x || pass.like_a != Py_None) {
    found.through = call(of.mm, std::array{u.ptr(), pass.b.ptr()});
  }
  if (pass.like_b != Py_None) {
    found.b = product(pass.like_b, transposed(u.ptr()).ptr(), rows_of(pass.low.ptr()).ptr(), scale,
                      pass.is_float);
  }
  if (pass.like_a != Py_None) {
    found.a = product(pass.like_a, transposed(found.through.ptr()).ptr(),
                      rows_of(pass.x.ptr()).ptr(), scale, pass.is_float);
  }
  if (pass.of_x) {
    found.x = call(of.mm, std::array{u.ptr(), pass.weight.ptr()});
    if (pass.adds_low_rank) {
      call_method(of.add_product,
                  std::array{found.x.ptr(), found.through.ptr(), pass.a.ptr(), scale}, of.alpha);
    }
  }
  return found;
}

// (d_out, x, call, like_a, like_b, of_x, magnitude_type, is_float, adds_low_rank) -> (d_x, t, d_A,
// d_B, d_magnitude) or None.
PyObject* linear_gradients(PyObject*, PyObject* const* arguments, Py_ssize_t count) noexcept {
  if (count != 9) {
    PyErr_Format(PyExc_TypeError, "linear_gradients takes 9 arguments, not %zd", count);
    return nullptr;
  }
  return with_python_errors([&]() -> PyObject* {
    const Products& of = products();
    PyObject* const call_of = arguments[2];
    Pass pass{.d_out = borrowed(arguments[0]),
              .x = borrowed(arguments[1]),
              .weight = part(call_of, of.weight),
              .a = part(call_of, of.a),
              .b = part(call_of, of.b),
              .low = part(call_of, of.low),
              .inner = py::none(),
              .gain = part(call_of, of.gain),
              .divisor = py::none(),
              .scale = part(call_of, of.scale),
              .like_a = arguments[3],
              .like_b = arguments[4],
              .magnitude_type = borrowed(arguments[6]),
              .of_x = arguments[5] == Py_True,
              .is_float = arguments[7] == Py_True,
              .adds_low_rank = arguments[8] == Py_True};
    if (!pass.magnitude_type.is_none()) {
      pass.inner = part(call_of, of.inner);
      pass.divisor = part(call_of, of.divisor);
    }
    const py::object kept = pass.inner;  // until it is known that the launches are not refused
    set_part(call_of, of.inner, Py_None);
    const auto found = run(pass);
    if (!found) {
      set_part(call_of, of.inner, kept.ptr());
      return none();
    }
    return py::make_tuple(found->x, found->through, found->a, found->b, found->magnitude)
        .release()
        .ptr();
  });
}

// What DoraLinear.forward stores as `ctx.kept`, and saves.
enum Kept : Py_ssize_t { kIsFloat, kScale, kHeld, kVersions, kTrained };
enum Saved : Py_ssize_t {
  kWeight,
  kA,
  kB,
  kX,
  kLow,
  kMask,
  kOfOutput,
  kInner,
  kGain,
  kDivisor,
  kSavedCount
};

// The matrix in the shape of the layer's input.
py::object in_shape_of(const py::object& matrix, const DLTensor& d_out) {
  if (d_out.ndim == 2) return matrix;
  const Products& of = products();
  TorchTensor read;
  if (!read.read_result(matrix)) throw std::runtime_error("the gradient of x cannot be read");
  const int last = d_out.ndim - 1;
  const py::object sizes = owned(PyTuple_New(d_out.ndim));
  for (int i = 0; i <= last; ++i) {
    const std::int64_t size = i == last ? read.dl().shape[1] : d_out.shape[i];
    PyTuple_SET_ITEM(sizes.ptr(), i, PyLong_FromLongLong(size));
  }
  return call_method(of.view, std::array{matrix.ptr(), sizes.ptr()});
}

// (ctx, d_out, otherwise) -> the gradients of DoraLinear's inputs, or None.
PyObject* linear_backward(PyObject*, PyObject* const* arguments, Py_ssize_t count) noexcept {
  if (count != 3) {
    PyErr_Format(PyExc_TypeError, "linear_backward takes 3 arguments, not %zd", count);
    return nullptr;
  }
  return with_python_errors([&]() -> PyObject* {
    const Products& of = products();
    PyObject* const ctx = arguments[0];
    TorchTensor d_out;
    if (!d_out.read(arguments[1]) || d_out.dl().ndim < 2) return none();
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
              .weight = weights[0],
              .a = weights[1],
              .b = weights[2],
              .low = saved_one(kLow),
              .inner = saved_one(kInner),
              .gain = saved_one(kGain),
              .divisor = saved_one(kDivisor),
              .scale = borrowed(kept_one(kScale)),
              .like_a = of_a ? PyTuple_GET_ITEM(trained, 0) : Py_None,
              .like_b = of_b ? PyTuple_GET_ITEM(trained, 1) : Py_None,
              .of_x = of_x,
              .is_float = kept_one(kIsFloat) == Py_True,
              .adds_low_rank = true};
    if (of_magnitude) pass.magnitude_type = part(PyTuple_GET_ITEM(trained, 2), of.dtype);
    saved = py::none();  // under a checkpoint `pass` alone has inner now
    const auto found = run(pass);
    if (!found) {
      return otherwise(py::make_tuple(pass.weight, pass.a, pass.b, pass.x, pass.low, py::none(),
                                      py::none(), pass.inner, pass.gain, pass.divisor));
    }
    const py::object d_x = of_x ? in_shape_of(found->x, d_out.dl()) : py::none();
    return py::make_tuple(d_x, found->a, found->b, found->magnitude, py::none(), py::none(),
                          py::none())
        .release()
        .ptr();
  });
}

}  // namespace

void add_linear_gradients(py::module_& module) {
  static std::array methods = {
      fast_method(
          "linear_gradients", linear_gradients,
          "linear_gradients($module, d_out, x, call, like_a, like_b, of_x, magnitude_type, "
          "is_float, adds_low_rank, /)\n--\n\n"
          "The launches of a backward pass with a dorajit.layers.node.Call, whose inner is dropped "
          "after its last use: (d_x as a matrix, t = u B, d_A, d_B, d_magnitude), "
          "None where a gradient is not wanted; None if something observes the call or no kernel "
          "takes the tensors. like_a and like_b have the shapes and types of d_A and d_B."),
      fast_method(
          "linear_backward", linear_backward,
          "linear_backward($module, ctx, d_out, otherwise, /)\n--\n\n"
          "DoraLinear.backward by these launches, for a layer without dropout over a weight that "
          "is "
          "not quantized, whose products have one element type. None if another gradient is wanted "
          "than those of x, A, B and the magnitude. otherwise(ctx, d_out, saved tensors) if a held "
          "weight was written, if something observes the call, or if no kernel takes the tensors."),
      PyMethodDef{},
  };
  if (PyModule_AddFunctions(module.ptr(), methods.data()) != 0) throw py::error_already_set();
}

}  // namespace dorajit::python
