// The functions by which Python calls an operation. Arguments are its tensors and then its scalars;
// `self` is a capsule of a NativeOperation.
#pragma once

#include <pybind11/pybind11.h>

namespace dorajit::python {

inline constexpr const char* kOperationCapsule = "dorajit.operations.table";

// Returns the outputs. Raises an error for tensors that no kernel takes.
PyObject* call_operation(PyObject* self, PyObject* const* arguments, Py_ssize_t count) noexcept;

// Returns the outputs if nothing observes the call and a kernel serves it; otherwise does nothing
// and returns the result of who_sees(). A passed output tensor is written as by an in-place
// operation of PyTorch: its version is incremented.
PyObject* call_at_once(PyObject* self, PyObject* const* arguments, Py_ssize_t count) noexcept;

}  // namespace dorajit::python
