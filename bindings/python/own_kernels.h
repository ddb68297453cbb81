// Kernels of the user's own over torch tensors.
#pragma once

#include <pybind11/pybind11.h>

namespace dorajit::python {

// Adds `make_kernel`.
void add_own_kernels(pybind11::module_& module);

}  // namespace dorajit::python
