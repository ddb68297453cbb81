// The operations of dorajit.h over torch tensors.
#pragma once

#include <pybind11/pybind11.h>

namespace dorajit::python {

// Adds compose, compose_inner, backward, norm_assembly, compose_residual, residual_backward and
// warmup, which write into tensors that are given.
void add_operations(pybind11::module_& module);

// Operation -> calls that a kernel served.
pybind11::dict call_counts();

}  // namespace dorajit::python
