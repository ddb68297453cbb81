// Which route a call from Python takes (dorajit/eligibility.py has the routes and what they mean).
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>

namespace dorajit::python {

// Adds `is_one_node`, `is_one_launch`, `is_observed` and `configure_eligibility`, which has to be
// called first.
void add_eligibility(pybind11::module_& module);

// The dispatch keys, among those that a thread includes, that stand for an observer of its
// operations. Lives as long as the process; 0 until configure_eligibility has set it.
const std::uint64_t& observers();

}  // namespace dorajit::python
