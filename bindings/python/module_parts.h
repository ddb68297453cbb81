// The parts of the extension module; each function adds those of one source file.
#pragma once

#include <pybind11/pybind11.h>

namespace dorajit::python {

// The functions of each operation, `operations`, `warmup` and `call_counts`.
void add_operations(pybind11::module_& module);

// `linear_forward`: the forward pass of a linear layer's node.
void add_gated_mlp(pybind11::module_& module);
void add_linear(pybind11::module_& module);

// `linear_backward` and `linear_gradients`: its backward pass.
void add_linear_gradients(pybind11::module_& module);

// `record`: problems of calls over fake tensors.
void add_recording(pybind11::module_& module);

// `make_kernel`: kernels of the user's own over torch tensors.
void add_own_kernels(pybind11::module_& module);

// `tensor_state`: a key that changes when tensors change, for values that are cached until then.
void add_tensor_state(pybind11::module_& module);

}  // namespace dorajit::python
