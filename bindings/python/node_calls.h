// What the autograd node (dorajit/autograd_node/) calls, which is compiled where PyTorch is.
#pragma once

#include <pybind11/pybind11.h>

namespace dorajit::python {

// Adds node_calls, allow_node_calls and cache_folder.
void add_node_calls(pybind11::module_& module);

}  // namespace dorajit::python
