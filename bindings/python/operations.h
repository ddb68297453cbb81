// The operations of dorajit.h for torch tensors.
#pragma once

#include <pybind11/pybind11.h>

namespace dorajit::python {

// Adds two functions for each operation, the table of operations, warmup,
// and the counts of calls.
void add_operations(pybind11::module_& module);

}  // namespace dorajit::python
