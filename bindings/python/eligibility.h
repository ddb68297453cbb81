// Which route a call from Python takes (dorajit/operations/eligibility.py has the routes and what
// they mean).
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <span>

namespace dorajit::python {

// Adds `who_sees`, `is_observed` and `configure_eligibility`, which has to be called first.
void add_eligibility(pybind11::module_& module);

// Who sees a call one by one. A call that nobody sees is one launch and nothing else.
enum Seen : int { kSomebody = 0, kNobody = 1, kAutograd = 2 };

// Whether it is a torch.Tensor or a torch.nn.Parameter, and of no class derived from them.
bool is_plain(PyObject* tensor);

// Of an eager call of these tensors and scalars, kSomebody if one of them is not plain; below 0: a
// Python error is set.
int who_sees(std::span<PyObject* const> tensors, std::span<PyObject* const> scalars);

// The dispatch keys, among those that a thread includes, that stand for an observer of its
// operations. Lives as long as the process; 0 until configure_eligibility has set it.
const std::uint64_t& observers();

}  // namespace dorajit::python
