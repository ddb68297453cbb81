// Whether tensors are what they were: for what is kept of a call until they change.
#pragma once

#include <pybind11/pybind11.h>

namespace dorajit::python {

// Adds `tensor_state`.
void add_tensor_state(pybind11::module_& module);

}  // namespace dorajit::python
