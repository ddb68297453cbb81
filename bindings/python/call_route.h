// Who has a say in a call besides dorajit.
#pragma once

#include <pybind11/pybind11.h>

#include <array>
#include <span>

namespace dorajit::python {

enum Route : long {
  kIndirect = 0,   // a subclass, mode, trace or transform of PyTorch has to see the call
  kDirect = 1,     // nobody has
  kWithGraph = 2,  // autograd has, as an argument requires grad
  kFailed = -1,    // a Python error is set
};

// Of a call with these tensors, or what is passed for them. Needs the GIL.
Route route_of(std::span<PyObject* const> tensors, PyObject* scale);

// What of PyTorch tells it.
struct CallRoute {
  std::array<PyObject*, 2> plain_types{};  // torch.Tensor and torch.nn.Parameter
  // Callables: how many dispatch modes there are, whether the dispatcher includes a key, the tracer
  // or None, the level of torch.func's transforms or None, whether a graph is built.
  PyObject* mode_count = nullptr;
  PyObject* is_key_included = nullptr;
  PyObject* tracing_state = nullptr;
  PyObject* transform_level = nullptr;
  PyObject* is_grad_enabled = nullptr;
  // The key of dispatch modes that come before autograd.
  PyObject* pre_dispatch = nullptr;
  // The variables of torch.autograd.forward_ad.
  PyObject* forward_ad = nullptr;
};

// Adds `route` and `configure_route`, which has to be called first.
void add_call_route(pybind11::module_& module);

}  // namespace dorajit::python
