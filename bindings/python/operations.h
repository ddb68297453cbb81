// The operations of dorajit.h for torch tensors.
#pragma once

#include <pybind11/pybind11.h>

namespace dorajit::python {

// Adds the two functions of operation_call.h for each operation, the table of operations and
// warmup.
void add_operations(pybind11::module_& module);

// Operation -> number of calls that a kernel served.
pybind11::dict call_counts();

}  // namespace dorajit::python
