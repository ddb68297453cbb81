// Functions of the extension that are called on every training step: without the time that
// pybind11 takes to find out which overload is meant.
#pragma once

#include <pybind11/pybind11.h>

#include <array>
#include <cstddef>
#include <exception>
#include <span>

namespace dorajit::python {

template <std::size_t kCount>
using Tensors = std::span<PyObject* const, kCount>;

// What `body` returns, a new reference; or null and a Python error for what it throws.
template <class Body>
PyObject* with_python_errors(const Body& body) noexcept {
  try {
    return body();
  } catch (pybind11::error_already_set& error) {
    error.restore();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

// A method that takes kCount tensors and a float, all by position.
template <std::size_t kCount, void (*kRun)(Tensors<kCount>, double)>
PyObject* positional_function(PyObject*, PyObject* const* arguments, Py_ssize_t count) noexcept {
  if (count != Py_ssize_t{kCount} + 1) {
    return PyErr_Format(PyExc_TypeError, "takes %zd arguments, not %zd", Py_ssize_t{kCount} + 1,
                        count);
  }
  const double scale = PyFloat_AsDouble(arguments[kCount]);
  if (scale == -1 && PyErr_Occurred() != nullptr) return nullptr;
  return with_python_errors([&] {
    kRun(Tensors<kCount>(arguments, kCount), scale);
    return Py_NewRef(Py_None);
  });
}

// For PyModule_AddFunctions(). The documentation begins with names and types, which make_stub.py
// reads:
//   "scaled($module, lora, scale, /)\n--\n\n"
//   "(Tensor, float) -> None\n\n"
//   "What it does."
inline PyMethodDef fast_method(const char* name, _PyCFunctionFast function,
                               const char* documentation) {
  // Python's own way to keep functions of several signatures in one field.
  return {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function)),
          METH_FASTCALL, documentation};
}

template <std::size_t kCount, void (*kRun)(Tensors<kCount>, double)>
PyMethodDef positional_method(const char* name, const char* documentation) {
  return fast_method(name, positional_function<kCount, kRun>, documentation);
}

}  // namespace dorajit::python
