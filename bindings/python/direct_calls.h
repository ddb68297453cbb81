// Operations whose results are allocated here: one step from Python for a call that nothing
// hinders.
#pragma once

#include <pybind11/pybind11.h>

namespace dorajit::python {

// Adds compose_directly, compose_inner_directly, compose_residual_directly, backward_directly and
// residual_backward_directly. What they cannot do, or what goes wrong, the longer way in Python
// does again: it finds out why and says so.
void add_direct_calls(pybind11::module_& module);

}  // namespace dorajit::python
