// A torch.Tensor as a DLTensor, read through DLPack's C exchange API, or through its Python
// attributes where PyTorch is older than that: no header of PyTorch is included and none of its
// libraries linked, so one build serves all its versions.
#pragma once

#include <dlpack/dlpack.h>
#include <pybind11/pybind11.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "bindings/python/exchange_api.h"

namespace dorajit::python {

// What of PyTorch the extension must be told, as it imports nothing itself.
struct Torch {
  static constexpr std::size_t kTypes = 4;

  struct Type {
    PyObject* dtype = nullptr;
    DLDataType dl{};
  };

  std::array<Type, kTypes> types{};
  PyObject* byte_type = nullptr;          // torch.uint8
  PyObject* empty_like = nullptr;         // torch.empty_like
  PyObject* is_neg = nullptr;             // of a tensor
  PyObject* is_inference = nullptr;       // of a tensor
  PyObject* in_inference = nullptr;       // whether the thread is in inference mode
  PyObject* count_change = nullptr;       // of a tensor that was written
  PyObject* current_stream = nullptr;     // device index -> stream; null without CUDA
  const ExchangeApi* exchange = nullptr;  // null: everything is read through Python
};

// A tuple of the one name `dtype`, for calls with that argument named. Borrowed. The first call is
// to be made while the module is imported: memory that is collected meanwhile may run Python.
PyObject* dtype_alone();

// Filled once by configure(); its references are never dropped.
Torch& torch();

// Null for what is no element type of PyTorch's that kernels have.
const DLDataType* kernel_type_of(const PyObject* dtype);

// Borrowed: valid while the Python object lives and is not resized.
class TorchTensor {
 public:
  // Reads the tensor. False if it is no dense tensor that a kernel could take; no Python error is
  // set then. Needs the GIL.
  bool read(pybind11::handle tensor);

  // The same of a tensor that PyTorch has just allocated, and so put nothing off for.
  bool read_result(pybind11::handle tensor);

  [[nodiscard]] const DLTensor& dl() const { return dl_; }

 private:
  static constexpr int kMaxDims = 16;

  bool read_memory(PyObject* tensor);
  bool borrow(const ExchangeApi& api, PyObject* tensor);
  bool read_attributes(PyObject* tensor);
  bool read_shape(PyObject* tensor);
  bool read_device(PyObject* tensor);

  DLTensor dl_{};
  std::array<std::int64_t, kMaxDims> shape_;
  std::array<std::int64_t, kMaxDims> strides_;
};

bool have_one_shape(const DLTensor& a, const DLTensor& b);

// Whether PyTorch forbids that the tensor, made in inference mode, is written. Needs the GIL;
// throws error_already_set.
bool is_frozen_by_inference(PyObject* tensor);

// Bytes from PyTorch's allocator, which may be dropped as soon as the work that uses them is
// enqueued.
class TorchMemory {
 public:
  TorchMemory() = default;
  // On the device of the tensor `like`. Needs the GIL, as does its end; throws error_already_set.
  TorchMemory(pybind11::handle like, std::int64_t bytes);

  [[nodiscard]] void* data() const { return data_; }

 private:
  pybind11::object tensor_;
  void* data_ = nullptr;
};

// The current stream of the device; 0 for the CPU. Needs the GIL; throws error_already_set.
void* current_stream(const DLDevice& device);

}  // namespace dorajit::python
