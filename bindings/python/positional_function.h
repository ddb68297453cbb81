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

// A method for PyModule_AddFunctions() that takes kCount tensors and a float, all by position.
// `kRun` may throw what pybind11's functions may.
template <std::size_t kCount, void (*kRun)(Tensors<kCount>, double)>
PyObject* positional_function(PyObject*, PyObject* const* arguments, Py_ssize_t count) noexcept {
  if (count != Py_ssize_t{kCount} + 1) {
    return PyErr_Format(PyExc_TypeError, "takes %zd arguments, not %zd", Py_ssize_t{kCount} + 1,
                        count);
  }
  const double scale = PyFloat_AsDouble(arguments[kCount]);
  if (scale == -1 && PyErr_Occurred() != nullptr) return nullptr;
  try {
    kRun(Tensors<kCount>(arguments, kCount), scale);
  } catch (pybind11::error_already_set& error) {
    error.restore();
    return nullptr;
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
    return nullptr;
  }
  Py_RETURN_NONE;
}

template <std::size_t kCount, void (*kRun)(Tensors<kCount>, double)>
PyMethodDef positional_method(const char* name, const char* documentation) {
  return {name, reinterpret_cast<PyCFunction>(&positional_function<kCount, kRun>), METH_FASTCALL,
          documentation};
}

}  // namespace dorajit::python
