#include "bindings/python/torch_tensor.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "bindings/python/eligibility.h"
#include "bindings/python/module_parts.h"

namespace dorajit::python {
namespace {

namespace py = pybind11;

// Interned once and kept.
struct Names {
  PyObject* data_ptr = PyUnicode_InternFromString("data_ptr");
  PyObject* dtype = PyUnicode_InternFromString("dtype");
  PyObject* shape = PyUnicode_InternFromString("shape");
  PyObject* stride = PyUnicode_InternFromString("stride");
  PyObject* storage_offset = PyUnicode_InternFromString("storage_offset");
  PyObject* is_cuda = PyUnicode_InternFromString("is_cuda");
  PyObject* is_cpu = PyUnicode_InternFromString("is_cpu");
  PyObject* get_device = PyUnicode_InternFromString("get_device");
  PyObject* new_empty = PyUnicode_InternFromString("new_empty");
  PyObject* dtype_alone = PyTuple_Pack(1, dtype);
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

std::span<const Torch::Type> first_types(std::size_t count) {
  return std::span(torch().types).first(count);
}

const DLDataType* type_of(const PyObject* dtype, std::size_t types) {
  for (const Torch::Type& type : first_types(types)) {
    if (type.dtype == dtype) return &type.dl;
  }
  return nullptr;
}

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

py::object owned(PyObject* made) {
  if (made == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(made);
}

PyObject* dtype_alone() { return names().dtype_alone; }

Torch& torch() {
  static Torch* const kept = new Torch;
  return *kept;
}

const DLDataType* kernel_type_of(const PyObject* dtype) { return type_of(dtype, Torch::kFloats); }

bool TorchTensor::read_shape(PyObject* tensor) {
  const py::object shape = attribute(tensor, names().shape);
  if (!shape || !PyTuple_Check(shape.ptr())) return false;
  const Py_ssize_t dims = PyTuple_GET_SIZE(shape.ptr());
  if (dims > kMaxDims) return false;
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

bool TorchTensor::read_type(PyObject* tensor, std::size_t types) {
  const py::object dtype = attribute(tensor, names().dtype);
  const DLDataType* const type = dtype ? type_of(dtype.ptr(), types) : nullptr;
  if (type == nullptr) return false;
  dl_.dtype = *type;
  return true;
}

// PyTorch aligns the beginning of a tensor's memory to more than a vector.
bool TorchTensor::read_fake(PyObject* tensor, std::size_t types) {
  if (!read_type(tensor, types) || !read_shape(tensor)) return false;
  may_be_negated_ = false;
  std::int64_t offset = 0;
  const py::object elements = call(tensor, names().storage_offset);
  if (!elements || !to_integer(elements.ptr(), offset)) return false;
  constexpr std::int64_t kBeginning = std::int64_t{1} << 40;
  dl_.data = std::bit_cast<void*>(kBeginning + offset * (dl_.dtype.bits / 8));
  dl_.device = recording().device;
  return true;
}

bool TorchTensor::read_attributes(PyObject* tensor, std::size_t types) {
  if (!read_type(tensor, types) || !read_device(tensor) || !read_shape(tensor)) return false;
  std::int64_t address = 0;
  const py::object pointer = call(tensor, names().data_ptr);
  if (!pointer || !to_integer(pointer.ptr(), address)) return false;
  dl_.data = std::bit_cast<void*>(address);
  return true;
}

bool TorchTensor::borrow(const ExchangeApi& api, PyObject* tensor, std::size_t types) {
  DLTensor found{};
  if (api.borrow(tensor, &found) != 0) return false;
  const std::span<const Torch::Type> known = first_types(types);
  const auto type = std::ranges::find_if(
      known, [&](const Torch::Type& one) { return have_one_type(one.dl, found.dtype); });
  const bool is_taken = type != known.end() && found.ndim <= kMaxDims &&
                        (found.device.device_type == kDLCPU || found.device.device_type == kDLCUDA);
  if (!is_taken || (found.ndim > 0 && found.strides == nullptr)) return false;
  // Copied, because the tensor may be resized while the kernel is compiled.
  std::copy_n(found.shape, found.ndim, shape_.begin());
  std::copy_n(found.strides, found.ndim, strides_.begin());
  may_be_negated_ = type->may_be_negated;
  dl_ = found;
  dl_.shape = shape_.data();
  dl_.strides = strides_.data();
  return true;
}

bool TorchTensor::read(py::handle tensor, std::size_t types) {
  if (!read_result(tensor, types)) return false;
  if (!may_be_negated_) return true;
  // The memory of a tensor with a pending negation has the opposite signs.
  const auto is_neg =
      py::reinterpret_steal<py::object>(PyObject_CallOneArg(torch().is_neg, tensor.ptr()));
  if (!is_neg) PyErr_Clear();
  return is_neg.ptr() == Py_False;
}

bool TorchTensor::read_result(py::handle tensor, std::size_t types) {
  const ExchangeApi* const api = torch().exchange;
  const bool is_read = is_fake(tensor.ptr()) ? read_fake(tensor.ptr(), types)
                       : api != nullptr      ? borrow(*api, tensor.ptr(), types)
                                             : read_attributes(tensor.ptr(), types);
  if (!is_read) PyErr_Clear();
  return is_read;
}

bool have_one_type(const DLDataType& a, const DLDataType& b) {
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

bool have_one_shape(const DLTensor& a, const DLTensor& b) {
  return a.ndim == b.ndim && std::equal(a.shape, a.shape + a.ndim, b.shape);
}

bool is_frozen_by_inference(PyObject* tensor) {
  if (owned(PyObject_CallOneArg(torch().is_inference, tensor)).ptr() != Py_True) return false;
  return owned(PyObject_CallNoArgs(torch().in_inference)).ptr() != Py_True;
}

py::object new_empty(PyObject* like, PyObject* shape, PyObject* dtype) {
  const std::array<PyObject*, 3> arguments = {like, shape, dtype};
  return owned(PyObject_VectorcallMethod(names().new_empty, arguments.data(), 2, dtype_alone()));
}

TorchMemory::TorchMemory(py::handle like, std::int64_t bytes) {
  const py::object size = owned(PyLong_FromLongLong(bytes));
  tensor_ = new_empty(like.ptr(), size.ptr(), torch().byte_type);
  const py::object pointer = owned(PyObject_CallMethodNoArgs(tensor_.ptr(), names().data_ptr));
  std::int64_t address = 0;
  if (!to_integer(pointer.ptr(), address)) throw py::error_already_set();
  data_ = std::bit_cast<void*>(address);
}

void* current_stream(const DLDevice& device) {
  if (device.device_type != kDLCUDA) return nullptr;
  if (const ExchangeApi* const exchange = torch().exchange) {
    void* stream = nullptr;
    if (exchange->current_stream(device.device_type, device.device_id, &stream) != 0) {
      throw py::error_already_set();
    }
    return stream;
  }
  const py::object index = owned(PyLong_FromLong(device.device_id));
  const py::object stream = owned(PyObject_CallOneArg(torch().current_stream, index.ptr()));
  return PyLong_AsVoidPtr(stream.ptr());
}

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
