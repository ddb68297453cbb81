// The parts of the extension module; each function adds those of one source file.
#pragma once

#include <pybind11/pybind11.h>

#include <exception>

namespace dorajit::python {

// The functions of each operation, `operations`, `warmup` and `call_counts`.
void add_operations(pybind11::module_& module);

// `linear_forward`: the forward pass of a linear layer's node.
void add_gated_mlp(pybind11::module_& module);
void add_linear(pybind11::module_& module);

// `linear_backward`: its backward pass.
void add_linear_gradients(pybind11::module_& module);

// `record`: problems of calls over fake tensors.
void add_recording(pybind11::module_& module);

// `make_kernel`: kernels of the user's own over torch tensors.
void add_own_kernels(pybind11::module_& module);

// `tensor_state`: a key that changes when tensors change, for values that are cached until then.
void add_tensor_state(pybind11::module_& module);

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

// A definition for PyModule_AddFunctions() of a plain vectorcall function, for functions that are
// called in every training step: pybind11 would spend time on overload resolution. The
// documentation begins with names, which inspect.signature() reads:
//   "scaled($module, matrix, factor, /)\n--\n\n"
//   "What it does."
inline PyMethodDef fast_method(const char* name, _PyCFunctionFast function,
                               const char* documentation) {
  // The cast that CPython itself uses to store functions of several signatures in one field.
  return {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function)),
          METH_FASTCALL, documentation};
}

}  // namespace dorajit::python
