// A launch of an operation over tensors as Python passes them.
#pragma once

#include <pybind11/pybind11.h>

#include <span>

#include "bindings/python/native_operation.h"

namespace dorajit::python {

enum class Refusal { kRaised, kReturned };

// Runs an operation and returns its outputs, as Operands::outputs(). `tensors` are in the order of
// the operands, `scalars` in theirs. Errors that other views of the tensors or PyTorch may avoid
// are raised, or null is returned, as `refusal` says. Needs the GIL.
pybind11::object run_operation(NativeOperation& operation, std::span<PyObject* const> tensors,
                               const double* scalars, Refusal refusal);

}  // namespace dorajit::python
