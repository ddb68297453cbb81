// One call of the package's extension module with tensors of PyTorch.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "call_table.h"
#include "eligibility.h"

namespace dorajit::python {

// The operations that the extension calls; set by configure().
struct Operations {
  NativeOperation* weight_norm;
  NativeOperation* compose_low_rank;
  NativeOperation* compose_residual;
  NativeOperation* residual_backward;
};
inline Operations operations{};

struct ElementType {
  std::uint8_t code;
  std::uint8_t bits;
};

inline std::optional<ElementType> element_type(at::ScalarType type) {
  constexpr std::uint8_t kFloat = 2;
  constexpr std::uint8_t kBfloat = 4;
  switch (type) {
    case at::kFloat:
      return ElementType{kFloat, 32};
    case at::kHalf:
      return ElementType{kFloat, 16};
    case at::kDouble:
      return ElementType{kFloat, 64};
    case at::kBFloat16:
      return ElementType{kBfloat, 16};
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

// One call of the extension module. The added tensors must outlive it.
class Call {
 public:
  Call(NativeOperation* operation, double scale) : call_{}, scale_(scale) {
    call_.operation = operation;
    call_.scalars = &scale_;
    call_.num_scalars = 1;
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // Adds an operand; undefined: it is left out. False if no kernel takes it.
  bool add(const Tensor& tensor) {
    if (!tensor.defined()) return skip();
    return is_plain(tensor) && place(tensor, const_cast<void*>(tensor.const_data_ptr()));
  }

  // Adds a newly allocated tensor as an output; undefined: it is left out.
  bool add_result(const Tensor& tensor) {
    return tensor.defined() ? place(tensor, tensor.mutable_data_ptr()) : skip();
  }

  void set_workspace(const Tensor& bytes) {
    call_.workspace = bytes.mutable_data_ptr();
    call_.workspace_bytes = bytes.numel();
  }

  // The size of the workspace in bytes, 0 if none is needed; negative if no kernel takes the
  // tensors.
  std::int64_t workspace_bytes() {
    call_.num_tensors = static_cast<std::int32_t>(count_);
    return calls->workspace_bytes(call_);
  }

  // Runs the call. False if Python must handle it; nothing was done then. Throws errors that Python
  // would also raise. The caller must not hold the GIL.
  bool run(const at::Device& device) {
    if (device.is_cuda()) {
      call_.stream = raw_stream(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
    }
    call_.num_tensors = static_cast<std::int32_t>(count_);
    void* error = nullptr;
    const std::int32_t outcome = calls->run(call_, &error);
    if (outcome == kDone) return true;
    if (outcome == kServedOtherwise) return false;
    const pybind11::gil_scoped_acquire gil;
    calls->raise(outcome, error);
    throw_python_error();
  }

 private:
  static constexpr std::int64_t kMaxDims = 16;

  struct Extents {
    std::array<std::int64_t, kMaxDims> shape;
    std::array<std::int64_t, kMaxDims> strides;
  };

  bool skip() {
    ++count_;
    return true;
  }

  bool place(const Tensor& tensor, void* data) {
    const auto type = element_type(tensor.scalar_type());
    if (!type || tensor.dim() > kMaxDims) return false;
    // Copied, because the tensor may be resized while the kernel is compiled.
    Extents& extents = extents_[count_];
    std::ranges::copy(tensor.sizes(), extents.shape.begin());
    std::ranges::copy(tensor.strides(), extents.strides.begin());
    constexpr std::int32_t kCpu = 1;
    constexpr std::int32_t kCuda = 2;
    tensors_[count_] = {.data = data,
                        .shape = extents.shape.data(),
                        .strides = extents.strides.data(),
                        .dims = static_cast<std::int32_t>(tensor.dim()),
                        .device_type = tensor.is_cuda() ? kCuda : kCpu,
                        .device_index = tensor.is_cuda() ? tensor.get_device() : 0,
                        .type_code = type->code,
                        .type_bits = type->bits};
    call_.tensors[count_] = &tensors_[count_];
    ++count_;
    return true;
  }

  CallArguments call_;
  double scale_;
  std::array<BorrowedTensor, kMaxBorrowedTensors> tensors_;
  std::array<Extents, kMaxBorrowedTensors> extents_;
  std::size_t count_ = 0;
};

}  // namespace dorajit::python
