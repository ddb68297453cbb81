// Functions of the extension that are called on every training step: without the time that
// pybind11 takes to find out which overload is meant.
#pragma once

#include <pybind11/pybind11.h>

#include <exception>

namespace dorajit::python {

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

// For PyModule_AddFunctions(). The documentation begins with names and types, which make_stub.py
// reads:
//   "scaled($module, matrix, factor, /)\n--\n\n"
//   "(Tensor, float) -> None\n\n"
//   "What it does."
inline PyMethodDef fast_method(const char* name, _PyCFunctionFast function,
                               const char* documentation) {
  // Python's own way to keep functions of several signatures in one field.
  return {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function)),
          METH_FASTCALL, documentation};
}

}  // namespace dorajit::python
