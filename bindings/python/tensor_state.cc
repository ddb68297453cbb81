#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "bindings/python/eligibility.h"
#include "bindings/python/module_parts.h"
#include "bindings/python/positional_function.h"
#include "bindings/python/torch_tensor.h"

namespace dorajit::python {
namespace {

namespace py = pybind11;

template <class T>
void append(std::string& bytes, const T& value) {
  bytes += std::string_view(reinterpret_cast<const char*>(&value), sizeof(value));
}

// False for a tensor of a subclass, without a version, or whose memory kernels cannot read; a
// Python error may then be set.
bool append_state(std::string& bytes, PyObject* tensor) {
  if (!is_plain(tensor)) return false;
  static PyObject* const version_name = PyUnicode_InternFromString("_version");
  const auto version = py::reinterpret_steal<py::object>(PyObject_GetAttr(tensor, version_name));
  TorchTensor read;
  if (!version || !read.read(tensor)) return false;
  const DLTensor& dl = read.dl();
  append(bytes, PyLong_AsLongLong(version.ptr()));
  append(bytes, dl.data);
  append(bytes, dl.device.device_type);
  append(bytes, dl.device.device_id);
  append(bytes, dl.dtype.code);
  append(bytes, dl.dtype.bits);
  append(bytes, dl.ndim);
  for (int i = 0; i < dl.ndim; ++i) {
    append(bytes, dl.shape[i]);
    append(bytes, dl.strides[i]);
  }
  return true;
}

PyObject* tensor_state(PyObject*, PyObject* const* tensors, Py_ssize_t count) noexcept {
  return with_python_errors([&]() -> PyObject* {
    std::string bytes;
    for (Py_ssize_t i = 0; i < count; ++i) {
      if (!append_state(bytes, tensors[i])) {
        PyErr_Clear();
        Py_RETURN_NONE;
      }
    }
    return PyBytes_FromStringAndSize(bytes.data(), static_cast<Py_ssize_t>(bytes.size()));
  });
}

}  // namespace

void add_tensor_state(py::module_& module) {
  static std::array methods = {
      fast_method(
          "tensor_state", tensor_state,
          "tensor_state($module, /, *tensors)\n--\n\n"
          "(*Any) -> bytes | None\n\n"
          "A key of versions, addresses, shapes, strides, types and devices: it changes with each "
          "write that PyTorch counts. None if a tensor has no version or is of a subclass."),
      PyMethodDef{},
  };
  if (PyModule_AddFunctions(module.ptr(), methods.data()) != 0) throw py::error_already_set();
}

}  // namespace dorajit::python
