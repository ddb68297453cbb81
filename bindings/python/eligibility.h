// Whether a call from Python must go through PyTorch's dispatcher (autograd, modes, tracing,
// functorch) or can be launched directly. dorajit/operations/eligibility.py defines the routes.
#pragma once

#include <pybind11/pybind11.h>

#include <span>

namespace dorajit::python {

// Adds `who_sees`, `is_observed` and `configure_eligibility`, which has to be called first.
void add_eligibility(pybind11::module_& module);

// The observer of a call: a mode, tracer, transform or subclass (kSomebody); none (kNobody), so
// that the call is one launch and nothing else; or only autograd, which needs a node (kAutograd).
enum Seen : int { kSomebody = 0, kNobody = 1, kAutograd = 2 };

// Whether the type is exactly torch.Tensor or torch.nn.Parameter, not a subclass of them.
bool is_plain(PyObject* tensor);

// A Seen value for an eager call with these tensors and scalars; kSomebody also if a tensor is not
// plain or a scalar is not a float. Negative if a Python error is set.
int who_sees(std::span<PyObject* const> tensors, std::span<PyObject* const> scalars);

}  // namespace dorajit::python
