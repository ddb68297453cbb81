// Which route a call from Python takes (dorajit/eligibility.py has the routes and what they mean).
#pragma once

#include <pybind11/pybind11.h>

namespace dorajit::python {

// Adds `route`, `is_observed` and `configure_eligibility`, which has to be called first.
void add_eligibility(pybind11::module_& module);

}  // namespace dorajit::python
