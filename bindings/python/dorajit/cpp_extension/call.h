// A launch by the package's extension module, with tensors of PyTorch.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>

#include "call_table.h"

namespace dorajit::python {

using at::Tensor;

// Set by configure() and never released.
inline const CallTable* calls = nullptr;

inline std::optional<DLDataType> element_type(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return DLDataType{kDLFloat, 32, 1};
    case at::kHalf:
      return DLDataType{kDLFloat, 16, 1};
    case at::kDouble:
      return DLDataType{kDLFloat, 64, 1};
    case at::kBFloat16:
      return DLDataType{kDLBfloat, 16, 1};
    default:
      return std::nullopt;
  }
}

// Whether the tensor's values are the elements in its memory, and it is not a subclass that
// dispatches in Python.
inline bool is_plain(const Tensor& tensor) {
  return tensor.layout() == at::kStrided && !tensor.is_nested() && tensor.has_storage() &&
         !tensor.is_neg() && !tensor._is_zerotensor() &&
         !tensor.unsafeGetTensorImpl()->is_python_dispatch() &&
         (tensor.is_cpu() || tensor.is_cuda());
}

// Whether a mode, tracer or transform observes the operations of this thread.
inline bool is_observed() {
  return (c10::impl::tls_local_dispatch_key_set().included_.raw_repr() & *calls->observers) != 0;
}

// Whether anything other than autograd observes a call with this tensor, or it has a forward-mode
// tangent: the checks of dorajit/operations/eligibility.py, which makes those of forward passes.
inline bool is_seen(const Tensor& tensor) {
  return is_observed() || tensor._fw_grad(/*level=*/0).defined();
}

[[noreturn]] inline void throw_python_error() {
  python_error raised;
  raised.persist();
  throw raised;
}

// A template, because PyTorch before 2.11 does not have native_handle().
template <class Stream>
void* raw_stream(const Stream& stream) {
  if constexpr (requires { stream.native_handle(); }) {
    return stream.native_handle();
  } else {
    const pybind11::gil_scoped_acquire gil;
    void* raw = nullptr;
    if (!calls->current_stream(stream.device_index(), &raw)) throw_python_error();
    return raw;
  }
}

// Runs an operation by the extension module. False if Python must handle the call; nothing was done
// then. Throws errors that Python would also raise. The caller must not hold the GIL.
//
// tensors: the inputs and then the outputs, of which the first is given; undefined: it is left out.
inline bool launch(NativeOperation* operation, double scale,
                   std::initializer_list<const Tensor*> tensors) {
  constexpr std::size_t kMaxTensors = 8;
  constexpr std::size_t kMaxDims = 16;
  // Copied, because a tensor may be resized while the kernel is compiled.
  std::array<std::array<std::int64_t, kMaxDims>, 2 * kMaxTensors> extents;
  std::array<DLTensor, kMaxTensors> borrowed;
  std::array<const DLTensor*, kMaxTensors> pointers{};
  std::size_t place = 0;
  for (const Tensor* const one : tensors) {
    const std::size_t i = place++;
    if (!one->defined()) continue;
    const auto type = element_type(one->scalar_type());
    if (!type || !is_plain(*one) || one->sizes().size() > kMaxDims) return false;
    std::ranges::copy(one->sizes(), extents[2 * i].begin());
    std::ranges::copy(one->strides(), extents[2 * i + 1].begin());
    borrowed[i] = {.data = const_cast<void*>(one->const_data_ptr()),
                   .device = {one->is_cuda() ? kDLCUDA : kDLCPU,
                              one->is_cuda() ? static_cast<std::int32_t>(one->get_device()) : 0},
                   .ndim = static_cast<std::int32_t>(one->dim()),
                   .dtype = *type,
                   .shape = extents[2 * i].data(),
                   .strides = extents[2 * i + 1].data(),
                   .byte_offset = 0};
    pointers[i] = &borrowed[i];
  }
  const Tensor& first = **tensors.begin();
  CallArguments call{.operation = operation, .tensors = pointers.data(), .scale = scale};
  call.workspace_bytes = calls->workspace_bytes(call);
  if (call.workspace_bytes < 0) return false;
  Tensor workspace;
  if (call.workspace_bytes > 0) {
    workspace = at::empty({call.workspace_bytes}, first.options().dtype(at::kByte));
    call.workspace = workspace.mutable_data_ptr();
  }
  if (first.is_cuda()) {
    const c10::impl::VirtualGuardImpl device(first.device().type());
    call.stream = raw_stream(device.getStream(first.device()));
  }
  void* error = nullptr;
  const std::int32_t outcome = calls->run(call, &error);
  if (outcome == kDone) return true;
  if (outcome == kServedOtherwise) return false;
  const pybind11::gil_scoped_acquire gil;
  calls->raise(outcome, error);
  throw_python_error();
}

}  // namespace dorajit::python
