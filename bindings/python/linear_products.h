// What the passes of a DoRA linear layer (linear.cc, linear_gradients.cc) call of PyTorch. The
// matrix products are PyTorch's own functions, called by vectorcall: this needs no header of
// PyTorch, works with any version of it, and gives the bits of torch.nn.functional.linear.
#pragma once

#include <pybind11/pybind11.h>

#include <array>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>

#include "bindings/python/native_operation.h"
#include "bindings/python/torch_tensor.h"

namespace dorajit::python {

// PyTorch's functions and the names of methods and keyword arguments. Filled once; never released.
struct Products {
  PyObject* linear = nullptr;
  PyObject* mm = nullptr;
  PyObject* addmm = nullptr;
  PyObject* float32 = nullptr;
  PyObject* without_view = nullptr;
  PyObject* one = PyFloat_FromDouble(1);
  PyObject* zero = PyLong_FromLong(0);
  PyObject* minus_two = PyLong_FromLong(-2);
  PyObject* dim = PyUnicode_InternFromString("dim");
  PyObject* flatten = PyUnicode_InternFromString("flatten");
  PyObject* transpose = PyUnicode_InternFromString("t");
  PyObject* add_product = PyUnicode_InternFromString("addmm_");
  PyObject* is_view = PyUnicode_InternFromString("_is_view");
  PyObject* offset = PyUnicode_InternFromString("storage_offset");
  PyObject* storage = PyUnicode_InternFromString("untyped_storage");
  PyObject* nbytes = PyUnicode_InternFromString("nbytes");
  PyObject* dtype = PyUnicode_InternFromString("dtype");
  PyObject* weight = PyUnicode_InternFromString("weight");
  PyObject* a = PyUnicode_InternFromString("a");
  PyObject* b = PyUnicode_InternFromString("b");
  PyObject* divisor = PyUnicode_InternFromString("divisor");
  PyObject* gain = PyUnicode_InternFromString("gain");
  PyObject* scale = PyUnicode_InternFromString("scale");
  PyObject* of_norm = PyUnicode_InternFromString("of_norm");
  PyObject* magnitude = PyUnicode_InternFromString("magnitude");
  PyObject* low = PyUnicode_InternFromString("low");
  PyObject* inner = PyUnicode_InternFromString("inner");
  PyObject* to = PyUnicode_InternFromString("to");
  PyObject* add = PyUnicode_InternFromString("add");
  PyObject* again = PyUnicode_InternFromString("again");
  PyObject* dense = PyUnicode_InternFromString("dense");
  PyObject* release = PyUnicode_InternFromString("release");
  PyObject* dropout = PyUnicode_InternFromString("dropout");
  PyObject* base = PyUnicode_InternFromString("base");
  PyObject* mask = PyUnicode_InternFromString("mask");
  PyObject* drops_base = PyUnicode_InternFromString("drops_base");
  PyObject* kept = PyUnicode_InternFromString("kept");
  PyObject* needs_input_grad = PyUnicode_InternFromString("needs_input_grad");
  PyObject* saved_tensors = PyUnicode_InternFromString("saved_tensors");
  PyObject* version = PyUnicode_InternFromString("_version");
  PyObject* view = PyUnicode_InternFromString("view");
  PyObject* alpha = Py_BuildValue("(s)", "alpha");
  PyObject* beta_alpha = Py_BuildValue("(ss)", "beta", "alpha");
  PyObject* beta_alpha_type = Py_BuildValue("(sss)", "beta", "alpha", "out_dtype");
};

inline Products& products() {
  static Products all;
  return all;
}

template <std::size_t kCount>
pybind11::object call(PyObject* function, const std::array<PyObject*, kCount>& arguments,
                      PyObject* names = nullptr) {
  const std::size_t named =
      names == nullptr ? 0 : static_cast<std::size_t>(PyTuple_GET_SIZE(names));
  return owned(PyObject_Vectorcall(function, arguments.data(), kCount - named, names));
}

template <std::size_t kCount>
pybind11::object call_method(PyObject* name,
                             const std::array<PyObject*, kCount>& self_and_arguments,
                             PyObject* names = nullptr) {
  const std::size_t named =
      names == nullptr ? 0 : static_cast<std::size_t>(PyTuple_GET_SIZE(names));
  return owned(PyObject_VectorcallMethod(name, self_and_arguments.data(), kCount - named, names));
}

// The tensor as a matrix: all dimensions but the last are one. A vector stays one.
inline pybind11::object rows_of(PyObject* tensor) {
  const Products& of = products();
  const pybind11::object dims = call_method(of.dim, std::array{tensor});
  if (PyLong_AsLong(dims.ptr()) <= 2) return pybind11::reinterpret_borrow<pybind11::object>(tensor);
  return call_method(of.flatten, std::array{tensor, of.zero, of.minus_two});
}

inline pybind11::object transposed(PyObject* matrix) {
  return call_method(products().transpose, std::array{matrix});
}

// An attribute, such as one of a dorajit.layers.node.Call.
inline pybind11::object part(PyObject* call, PyObject* name) {
  return owned(PyObject_GetAttr(call, name));
}

inline void set_part(PyObject* call, PyObject* name, PyObject* value) {
  if (PyObject_SetAttr(call, name, value) != 0) throw pybind11::error_already_set();
}

inline NativeOperation& operation_named(const char* name) {
  NativeOperation* found = find_native_operation(name);
  if (found == nullptr) throw std::runtime_error(std::string("no operation ") + name);
  return *found;
}

inline pybind11::object launch(NativeOperation& operation, std::span<PyObject* const> tensors,
                               PyObject* scale) {
  const double value = PyFloat_AsDouble(scale);
  if (value == -1 && PyErr_Occurred() != nullptr) throw pybind11::error_already_set();
  return run_operation(operation, tensors, &value, Refusal::kReturned);
}

inline PyObject* none() { Py_RETURN_NONE; }

}  // namespace dorajit::python
