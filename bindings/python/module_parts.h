// The parts of the extension module; each function adds those of one source file.
#pragma once

#include <pybind11/pybind11.h>

namespace dorajit::python {

// The functions of each operation, `operations`, `warmup` and `call_counts`.
void add_operations(pybind11::module_& module);

// `make_kernel`: kernels of the user's own over torch tensors.
void add_own_kernels(pybind11::module_& module);

// `call_table` and `allow_call_table`: the functions that the C++ extension
// (dorajit/cpp_extension/) calls. The extension is compiled by the user, against the installed
// PyTorch.
void add_call_table(pybind11::module_& module);

// `cache_folder` and `extension_folder`: where the C++ extension is stored.
void add_extension_folder(pybind11::module_& module);

// `tensor_state`: a key that changes when tensors change, for values that are cached until then.
void add_tensor_state(pybind11::module_& module);

}  // namespace dorajit::python
