// Reads a torch.Tensor as a DLTensor, through DLPack's C exchange API or, with a PyTorch that does
// not have it, through Python attributes. No header of PyTorch is included and none of its
// libraries is linked, so one build works with all versions.
#pragma once

#include <Python.h>
#include <dlpack/dlpack.h>
#include <pybind11/pybind11.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace dorajit::python {

// The functions by which extension modules read a framework's tensors without its headers (DLPack
// 1.3, "C exchange API"; torch.Tensor.__dlpack_c_exchange_api__ since PyTorch 2.10). Declared here
// because it is newer than the DLPack headers of distributions; its ABI is fixed.
struct ExchangeApi {
  struct Version {
    std::uint32_t major = 0;
    std::uint32_t minor = 0;
  };
  static constexpr const char* kCapsuleName = "dlpack_exchange_api";
  static constexpr std::uint32_t kMajor = 1;

  Version version;
  const ExchangeApi* previous = nullptr;
  void* allocate_tensor = nullptr;
  void* tensor_from_object = nullptr;
  void* tensor_to_object = nullptr;
  // Borrows the object's tensor; shape and strides point into it. Returns 0, or sets a Python
  // error. May be null.
  int (*borrow)(PyObject* object, DLTensor* tensor) = nullptr;
  // Returns 0, or sets a Python error.
  int (*current_stream)(DLDeviceType type, std::int32_t device, void** stream) = nullptr;
};

// Null if the object is not a capsule of a version that has all members declared here.
inline const ExchangeApi* exchange_api_in(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, ExchangeApi::kCapsuleName) == 0) return nullptr;
  const auto* api =
      static_cast<const ExchangeApi*>(PyCapsule_GetPointer(capsule, ExchangeApi::kCapsuleName));
  while (api != nullptr && api->version.major != ExchangeApi::kMajor) api = api->previous;
  return api != nullptr && api->borrow != nullptr && api->current_stream != nullptr ? api : nullptr;
}

// The objects of PyTorch that the extension module uses; it imports nothing itself.
struct Torch {
  static constexpr std::size_t kTypes = 15;
  static constexpr std::size_t kFloats = 4;  // the first ones; others are for own kernels alone

  struct Type {
    PyObject* dtype = nullptr;
    DLDataType dl{};
    // Only views of the imaginary parts of conjugated complex tensors have a pending negation.
    bool may_be_negated = true;
  };

  std::array<Type, kTypes> types{};
  PyObject* byte_type = nullptr;          // torch.uint8
  PyObject* empty_like = nullptr;         // torch.empty_like
  PyObject* is_neg = nullptr;             // tensor -> whether its negation is pending
  PyObject* is_inference = nullptr;       // tensor -> whether it is an inference tensor
  PyObject* in_inference = nullptr;       // () -> whether the thread is in inference mode
  PyObject* count_change = nullptr;       // increments the version of a written tensor
  PyObject* current_stream = nullptr;     // device index -> stream; null without CUDA
  const ExchangeApi* exchange = nullptr;  // null: everything is read through Python
};

// The new reference; throws error_already_set if it is null.
pybind11::object owned(PyObject* made);

// The tuple ("dtype",), for calls with that keyword argument. Borrowed. Call it first while the
// module is imported: allocating the tuple may trigger garbage collection, which runs Python code.
PyObject* dtype_alone();

// Filled once by configure(); its references are never released.
Torch& torch();

// Null if `dtype` is not an element type of floating-point numbers that kernels support.
const DLDataType* kernel_type_of(const PyObject* dtype);

// Borrows the memory: valid while the Python object lives and is not resized.
class TorchTensor {
 public:
  // Reads the tensor. False if it is not a dense tensor that a kernel could take, which is one of
  // the first `types` element types; no Python error is then set. Needs the GIL.
  bool read(pybind11::handle tensor, std::size_t types = Torch::kFloats);

  // As read(), for a tensor that PyTorch has just allocated, so that no negation is pending.
  bool read_result(pybind11::handle tensor, std::size_t types = Torch::kFloats);

  [[nodiscard]] const DLTensor& dl() const { return dl_; }

 private:
  static constexpr int kMaxDims = 16;

  bool borrow(const ExchangeApi& api, PyObject* tensor, std::size_t types);
  bool read_attributes(PyObject* tensor, std::size_t types);
  bool read_fake(PyObject* tensor, std::size_t types);
  bool read_type(PyObject* tensor, std::size_t types);
  bool read_shape(PyObject* tensor);
  bool read_device(PyObject* tensor);

  DLTensor dl_{};
  bool may_be_negated_ = true;
  std::array<std::int64_t, kMaxDims> shape_;
  std::array<std::int64_t, kMaxDims> strides_;
};

bool have_one_type(const DLDataType& a, const DLDataType& b);
bool have_one_shape(const DLTensor& a, const DLTensor& b);

// Whether the tensor is an inference tensor and inference mode is off, so that PyTorch forbids
// writing it. Needs the GIL; throws error_already_set.
bool is_frozen_by_inference(PyObject* tensor);

// tensor.new_empty(shape, dtype=dtype). Needs the GIL; throws error_already_set.
pybind11::object new_empty(PyObject* like, PyObject* shape, PyObject* dtype);

// Memory from PyTorch's allocator. It may be released as soon as the work that uses it is enqueued.
class TorchMemory {
 public:
  TorchMemory() = default;
  // Allocates on the device of the tensor `like`. Constructor and destructor need the GIL; the
  // constructor throws error_already_set.
  TorchMemory(pybind11::handle like, std::int64_t bytes);

  [[nodiscard]] void* data() const { return data_; }

 private:
  pybind11::object tensor_;
  void* data_ = nullptr;
};

// The current stream of the device; 0 for the CPU. Needs the GIL; throws error_already_set.
void* current_stream(const DLDevice& device);

}  // namespace dorajit::python
