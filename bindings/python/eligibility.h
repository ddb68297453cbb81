// Which route a call from Python takes (dorajit/eligibility.py has the routes and what they mean).
#pragma once

#include <pybind11/pybind11.h>

namespace dorajit::python {

// 1 if operations are seen one by one by a mode, a tracer or a transform of PyTorch, or if
// forward-mode differentiation is on; 0 if not; below 0: a Python error is set. Needs the GIL.
int is_call_observed();

// Adds `route`, `is_observed` and `configure_eligibility`, which has to be called first.
void add_eligibility(pybind11::module_& module);

}  // namespace dorajit::python
