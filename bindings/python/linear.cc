// The launches of a forward and of a backward pass of a DoRA linear layer (dorajit/layers/node.py),
// each in one call. The matrix products are PyTorch's own functions, called by vectorcall: this
// needs no header of PyTorch, works with any version of it, and gives the bits of
// torch.nn.functional.linear.
#include <Python.h>

#include <array>
#include <cstddef>
#include <span>

#include "bindings/python/eligibility.h"
#include "bindings/python/module_parts.h"
#include "bindings/python/native_operation.h"
#include "bindings/python/positional_function.h"
#include "bindings/python/run_operation.h"
#include "bindings/python/torch_tensor.h"

namespace dorajit::python {
namespace {

namespace py = pybind11;

// PyTorch's functions and the names of methods and keyword arguments. Filled once; never released.
struct Products {
  PyObject* linear = nullptr;
  PyObject* mm = nullptr;
  PyObject* addmm = nullptr;
  PyObject* float32 = nullptr;
  PyObject* zero = PyLong_FromLong(0);
  PyObject* minus_two = PyLong_FromLong(-2);
  PyObject* dim = PyUnicode_InternFromString("dim");
  PyObject* flatten = PyUnicode_InternFromString("flatten");
  PyObject* transpose = PyUnicode_InternFromString("t");
  PyObject* add_product = PyUnicode_InternFromString("addmm_");
  PyObject* is_view = PyUnicode_InternFromString("_is_view");
  PyObject* dtype = PyUnicode_InternFromString("dtype");
  PyObject* alpha = Py_BuildValue("(s)", "alpha");
  PyObject* beta_alpha = Py_BuildValue("(ss)", "beta", "alpha");
  PyObject* beta_alpha_type = Py_BuildValue("(sss)", "beta", "alpha", "out_dtype");
};

Products& products() {
  static Products all;
  return all;
}

template <std::size_t kCount>
py::object call(PyObject* function, const std::array<PyObject*, kCount>& arguments,
                PyObject* names = nullptr) {
  const std::size_t named =
      names == nullptr ? 0 : static_cast<std::size_t>(PyTuple_GET_SIZE(names));
  return owned(PyObject_Vectorcall(function, arguments.data(), kCount - named, names));
}

template <std::size_t kCount>
py::object call_method(PyObject* name, const std::array<PyObject*, kCount>& self_and_arguments,
                       PyObject* names = nullptr) {
  const std::size_t named =
      names == nullptr ? 0 : static_cast<std::size_t>(PyTuple_GET_SIZE(names));
  return owned(PyObject_VectorcallMethod(name, self_and_arguments.data(), kCount - named, names));
}

// The tensor as a matrix: all dimensions but the last are one.
py::object rows_of(PyObject* tensor) {
  const Products& of = products();
  const py::object dims = call_method(of.dim, std::array{tensor});
  if (PyLong_AsLong(dims.ptr()) == 2) return py::reinterpret_borrow<py::object>(tensor);
  return call_method(of.flatten, std::array{tensor, of.zero, of.minus_two});
}

py::object transposed(PyObject* matrix) {
  return call_method(products().transpose, std::array{matrix});
}

NativeOperation& operation_named(const char* name) {
  NativeOperation* found = find_native_operation(name);
  if (found == nullptr) throw std::runtime_error(std::string("no operation ") + name);
  return *found;
}

py::object launch(NativeOperation& operation, std::span<PyObject* const> tensors, PyObject* scale) {
  const double value = PyFloat_AsDouble(scale);
  if (value == -1 && PyErr_Occurred() != nullptr) throw py::error_already_set();
  return run_operation(operation, tensors, &value, Refusal::kReturned);
}

bool is_number(PyObject* flag) { return flag == Py_True; }

PyObject* none() { Py_RETURN_NONE; }

// (x, given, weight, a, b, gain, bias, scale, inner_type, is_one_launch) -> (out, S, inner) or
// None.
PyObject* linear_forward(PyObject*, PyObject* const* arguments, Py_ssize_t count) noexcept {
  if (count != 10) {
    PyErr_Format(PyExc_TypeError, "linear_forward takes 10 arguments, not %zd", count);
    return nullptr;
  }
  const auto [x, given, weight, a, b, gain, bias, scale, inner_type, is_one_launch] =
      std::to_array({arguments[0], arguments[1], arguments[2], arguments[3], arguments[4],
                     arguments[5], arguments[6], arguments[7], arguments[8], arguments[9]});
  return with_python_errors([&]() -> PyObject* {
    const Products& of = products();
    static NativeOperation& compose_low_rank = operation_named("compose_low_rank");
    static NativeOperation& compose_residual = operation_named("compose_residual");
    const py::object out = call(of.linear, std::array{x, weight, bias});
    if (call_method(of.is_view, std::array{out.ptr()}).ptr() == Py_True) return none();
    const py::object low = call(of.linear, std::array{given, a});
    py::object made;
    if (is_number(is_one_launch)) {
      made = launch(compose_low_rank,
                    std::array{low.ptr(), b, out.ptr(), gain, bias, out.ptr(), inner_type}, scale);
    } else {
      const py::object lora = call(of.linear, std::array{low.ptr(), b});
      // inner is written over lora if it has its type.
      const bool is_over = inner_type != Py_None && lora.attr(of.dtype).ptr() == inner_type;
      made = launch(compose_residual,
                    std::array{lora.ptr(), out.ptr(), gain, bias, out.ptr(),
                               is_over ? lora.ptr() : inner_type},
                    scale);
    }
    if (!made) return none();
    return py::make_tuple(out, low,
                          py::reinterpret_borrow<py::object>(PyTuple_GET_ITEM(made.ptr(), 1)))
        .release()
        .ptr();
  });
}

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

// (d_out, x, low, inner, weight, a, b, gain, divisor, scale, like_a, like_b, of_x, magnitude_type,
// is_float, adds_low_rank) -> (d_x, t, d_A, d_B, d_magnitude), None where a gradient is not wanted,
// or None.
PyObject* linear_gradients(PyObject*, PyObject* const* arguments, Py_ssize_t count) noexcept {
  if (count != 16) {
    PyErr_Format(PyExc_TypeError, "linear_gradients takes 16 arguments, not %zd", count);
    return nullptr;
  }
  const auto [d_out, x, low, inner, weight, a, b, gain, divisor, scale, like_a, like_b, of_x,
              magnitude_type, is_float, adds_low_rank] =
      std::to_array({arguments[0], arguments[1], arguments[2], arguments[3], arguments[4],
                     arguments[5], arguments[6], arguments[7], arguments[8], arguments[9],
                     arguments[10], arguments[11], arguments[12], arguments[13], arguments[14],
                     arguments[15]});
  return with_python_errors([&]() -> PyObject* {
    const Products& of = products();
    static NativeOperation& magnitude_backward = operation_named("magnitude_backward");
    const std::array observed = {d_out, gain};
    const int seen = who_sees(observed, std::span(&scale, 1));
    if (seen < 0) throw py::error_already_set();
    if (seen != kNobody) return none();
    const bool is_of_magnitude = magnitude_type != Py_None;
    const bool is_of_x = of_x == Py_True;
    const py::object made =
        launch(magnitude_backward,
               std::array{d_out, is_of_magnitude ? inner : Py_None, gain,
                          is_of_magnitude ? divisor : Py_None, Py_None, Py_True, magnitude_type},
               scale);
    if (!made) return none();
    const py::object u = rows_of(PyTuple_GET_ITEM(made.ptr(), 1));
    py::object through = py::none();
    py::object d_x = py::none();
    py::object d_a = py::none();
    py::object d_b = py::none();
    if (is_of_x || like_a != Py_None) through = call(of.mm, std::array{u.ptr(), b});
    if (like_b != Py_None) {
      d_b = product(like_b, transposed(u.ptr()).ptr(), rows_of(low).ptr(), scale,
                    is_float == Py_True);
    }
    if (like_a != Py_None) {
      d_a = product(like_a, transposed(through.ptr()).ptr(), rows_of(x).ptr(), scale,
                    is_float == Py_True);
    }
    if (is_of_x) {
      d_x = call(of.mm, std::array{u.ptr(), weight});
      if (adds_low_rank == Py_True) {
        call_method(of.add_product, std::array{d_x.ptr(), through.ptr(), a, scale}, of.alpha);
      }
    }
    return py::make_tuple(d_x, through, d_a, d_b,
                          py::reinterpret_borrow<py::object>(PyTuple_GET_ITEM(made.ptr(), 2)))
        .release()
        .ptr();
  });
}

}  // namespace

void add_linear(py::module_& module) {
  static std::array methods = {
      fast_method(
          "linear_forward", linear_forward,
          "linear_forward($module, x, given, weight, a, b, gain, bias, scale, inner_type, "
          "is_one_launch, /)\n--\n\n"
          "The launches of a forward pass: (output, S = given a^T, inner or None); None if no "
          "kernel takes the tensors. Autograd must not record the call, and nothing else may "
          "observe it. inner_type is the element type of inner, or None."),
      fast_method(
          "linear_gradients", linear_gradients,
          "linear_gradients($module, d_out, x, low, inner, weight, a, b, gain, divisor, "
          "scale, like_a, like_b, of_x, magnitude_type, is_float, adds_low_rank, /)\n--\n\n"
          "The launches of a backward pass: (d_x as a matrix, t = u B, d_A, d_B, d_magnitude), "
          "None where a gradient is not wanted; None if something observes the call or no kernel "
          "takes the tensors. like_a and like_b have the shapes and types of d_A and d_B."),
      PyMethodDef{},
  };
  if (PyModule_AddFunctions(module.ptr(), methods.data()) != 0) throw py::error_already_set();
  module.def(
      "configure_products",
      [](const py::object& linear, const py::object& mm, const py::object& addmm,
         const py::object& float32) {
        Products& of = products();
        of.linear = linear.inc_ref().ptr();
        of.mm = mm.inc_ref().ptr();
        of.addmm = addmm.inc_ref().ptr();
        of.float32 = float32.inc_ref().ptr();
      },
      py::arg("linear"), py::arg("mm"), py::arg("addmm"), py::arg("float32"),
      "(Callable, Callable, Callable, dtype) -> None\n\n"
      "Passes PyTorch's matrix products: torch.nn.functional.linear, torch.mm, torch.addmm; and "
      "torch.float32.");
}

}  // namespace dorajit::python
