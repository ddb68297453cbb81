// Who besides autograd has a say in a call.
#pragma once

#include <ATen/TracerMode.h>
#include <ATen/functorch/DynamicLayer.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

#include <algorithm>
#include <initializer_list>

#include "call.h"

namespace dorajit::python {

// A mode, trace or transform of PyTorch, which has to see the call.
inline bool is_watched() {
  return c10::impl::TorchDispatchModeTLS::stack_len() > 0 ||
         c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::PreDispatch) ||
         at::tracer::impl::is_dispatch_enabled() ||
         at::functorch::maybeCurrentDynamicLayer().has_value();
}

// Of the tensors that are defined.
inline bool is_any(std::initializer_list<const Tensor*> tensors, bool (*holds)(const Tensor&)) {
  return std::ranges::any_of(tensors,
                             [&](const Tensor* one) { return one->defined() && holds(*one); });
}

inline bool has_tangent(const Tensor& tensor) { return tensor._fw_grad(/*level=*/0).defined(); }

}  // namespace dorajit::python
