// Plain vectorcall functions, for functions that are called in every training step: pybind11 would
// spend time on overload resolution.
#pragma once

#include <pybind11/pybind11.h>

#include <exception>

namespace dorajit::python {

// Returns the result of `body`, a new reference. If `body` throws, sets a Python error and returns
// null.
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

// A definition for PyModule_AddFunctions(). The documentation begins with names, which
// inspect.signature() reads:
//   "scaled($module, matrix, factor, /)\n--\n\n"
//   "What it does."
inline PyMethodDef fast_method(const char* name, _PyCFunctionFast function,
                               const char* documentation) {
  // The cast that CPython itself uses to store functions of several signatures in one field.
  return {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function)),
          METH_FASTCALL, documentation};
}

}  // namespace dorajit::python
