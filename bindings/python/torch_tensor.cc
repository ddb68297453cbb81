#include "bindings/python/torch_tensor.h"

#include <bit>

namespace dorajit::python {
namespace {

namespace py = pybind11;

// Interned once and kept.
struct Names {
  PyObject* data_ptr = PyUnicode_InternFromString("data_ptr");
  PyObject* dtype = PyUnicode_InternFromString("dtype");
  PyObject* shape = PyUnicode_InternFromString("shape");
  PyObject* stride = PyUnicode_InternFromString("stride");
  PyObject* is_cuda = PyUnicode_InternFromString("is_cuda");
  PyObject* is_cpu = PyUnicode_InternFromString("is_cpu");
  PyObject* is_neg = PyUnicode_InternFromString("is_neg");
  PyObject* get_device = PyUnicode_InternFromString("get_device");
};

const Names& names() {
  static const Names* const kept = new Names;
  return *kept;
}

py::object attribute(PyObject* object, PyObject* name) {
  return py::reinterpret_steal<py::object>(PyObject_GetAttr(object, name));
}

py::object call(PyObject* object, PyObject* method) {
  return py::reinterpret_steal<py::object>(PyObject_CallMethodNoArgs(object, method));
}

bool to_integer(PyObject* number, std::int64_t& value) {
  if (!PyLong_CheckExact(number)) return false;
  value = PyLong_AsLongLong(number);
  return value != -1 || PyErr_Occurred() == nullptr;
}

bool to_integers(PyObject* tuple, std::int64_t* values, int count) {
  if (!PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) != count) return false;
  for (int i = 0; i < count; ++i) {
    if (!to_integer(PyTuple_GET_ITEM(tuple, i), values[i])) return false;
  }
  return true;
}

const DLDataType* find_type(const PyObject* dtype) {
  for (const Torch::Type& type : torch().types) {
    if (type.dtype == dtype) return &type.dl;
  }
  return nullptr;
}

}  // namespace

Torch& torch() {
  static Torch* const kept = new Torch;
  return *kept;
}

bool TorchTensor::read_shape(PyObject* tensor) {
  const py::object shape = attribute(tensor, names().shape);
  if (!shape || !PyTuple_Check(shape.ptr())) return false;
  const Py_ssize_t dims = PyTuple_GET_SIZE(shape.ptr());
  if (dims > kMostDims) return false;
  const py::object strides = call(tensor, names().stride);
  if (!strides) return false;
  dl_.ndim = static_cast<int>(dims);
  dl_.shape = shape_.data();
  dl_.strides = strides_.data();
  return to_integers(shape.ptr(), shape_.data(), dl_.ndim) &&
         to_integers(strides.ptr(), strides_.data(), dl_.ndim);
}

bool TorchTensor::read_device(PyObject* tensor) {
  const py::object is_cpu = attribute(tensor, names().is_cpu);
  if (!is_cpu) return false;
  if (is_cpu.ptr() == Py_True) {
    dl_.device = {.device_type = kDLCPU, .device_id = 0};
    return true;
  }
  const py::object is_cuda = attribute(tensor, names().is_cuda);
  if (!is_cuda || is_cuda.ptr() != Py_True || torch().current_stream == nullptr) return false;
  std::int64_t index = 0;
  const py::object device = call(tensor, names().get_device);
  if (!device || !to_integer(device.ptr(), index)) return false;
  dl_.device = {.device_type = kDLCUDA, .device_id = static_cast<std::int32_t>(index)};
  return true;
}

bool TorchTensor::read(py::handle tensor) {
  PyObject* const object = tensor.ptr();
  const auto read_all = [&] {
    const py::object dtype = attribute(object, names().dtype);
    const DLDataType* const type = dtype ? find_type(dtype.ptr()) : nullptr;
    if (type == nullptr) return false;
    dl_.dtype = *type;
    if (!read_device(object) || !read_shape(object)) return false;
    // Negation that PyTorch has put off is not in the memory.
    const py::object is_neg = call(object, names().is_neg);
    if (!is_neg || is_neg.ptr() != Py_False) return false;
    std::int64_t address = 0;
    const py::object pointer = call(object, names().data_ptr);
    if (!pointer || !to_integer(pointer.ptr(), address)) return false;
    dl_.data = std::bit_cast<void*>(address);
    return true;
  };
  const bool is_read = read_all();
  if (!is_read) PyErr_Clear();
  return is_read;
}

void* current_stream(const DLDevice& device) {
  if (device.device_type != kDLCUDA) return nullptr;
  const py::object index = py::reinterpret_steal<py::object>(PyLong_FromLong(device.device_id));
  const py::object stream =
      py::reinterpret_steal<py::object>(PyObject_CallOneArg(torch().current_stream, index.ptr()));
  if (!stream) throw py::error_already_set();
  return PyLong_AsVoidPtr(stream.ptr());
}

}  // namespace dorajit::python
