// The functions by which extension modules read a framework's tensors without its headers
// (DLPack 1.3, "C exchange API"; torch.Tensor.__dlpack_c_exchange_api__ since PyTorch 2.10).
// Declared here because it is newer than the DLPack headers of distributions; its ABI is fixed.
#pragma once

#include <Python.h>
#include <dlpack/dlpack.h>

#include <cstdint>

namespace dorajit::python {

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

}  // namespace dorajit::python
