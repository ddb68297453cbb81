// The functions that Python calls an operation by: with its tensors and then its scalars. `self` is
// a capsule of a NativeOperation.
#pragma once

#include <pybind11/pybind11.h>

namespace dorajit::python {

inline constexpr const char* kOperationCapsule = "dorajit.operations.table";

// The outputs; what no kernel takes is raised.
PyObject* call_operation(PyObject* self, PyObject* const* arguments, Py_ssize_t count) noexcept;

// The outputs, if nobody sees the call and a kernel serves it; else who sees it, and nothing was
// done. An output that is given is written as by an operation of PyTorch.
PyObject* call_at_once(PyObject* self, PyObject* const* arguments, Py_ssize_t count) noexcept;

}  // namespace dorajit::python
