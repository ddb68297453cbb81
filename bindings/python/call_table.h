// The functions that the C++ extension (dorajit/cpp_extension/) calls. The extension is compiled by
// the user, against the installed PyTorch.
#pragma once

#include <pybind11/pybind11.h>

namespace dorajit::python {

// Adds call_table, allow_call_table and cache_folder.
void add_call_table(pybind11::module_& module);

}  // namespace dorajit::python
