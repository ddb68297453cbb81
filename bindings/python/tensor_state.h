// A key that changes when tensors change, for values that are cached until then.
#pragma once

#include <pybind11/pybind11.h>

namespace dorajit::python {

// Adds `tensor_state`.
void add_tensor_state(pybind11::module_& module);

}  // namespace dorajit::python
