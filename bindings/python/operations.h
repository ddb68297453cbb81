// The operations of dorajit.h over torch tensors.
#pragma once

#include <pybind11/pybind11.h>

namespace dorajit::python {

// Adds a function for each operation, which writes into tensors that are given, and warmup.
void add_operations(pybind11::module_& module);

// Operation -> calls that a kernel served.
pybind11::dict call_counts();

}  // namespace dorajit::python
