// Whether the extension may run a backward pass directly, or it must go through PyTorch's
// dispatcher: the checks of dorajit/operations/eligibility.py, which makes those of forward passes.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "call_table.h"

namespace dorajit::python {

using at::Tensor;

// Set by configure() and never released.
inline const CallTable* calls = nullptr;

// Whether a mode, tracer or transform observes the operations of this thread.
inline bool is_observed() {
  return (c10::impl::tls_local_dispatch_key_set().included_.raw_repr() & *calls->observers) != 0;
}

// Whether the tensor has a forward-mode tangent.
inline bool has_tangent(const Tensor& tensor) { return tensor._fw_grad(/*level=*/0).defined(); }

// Whether anything other than autograd observes a call with this tensor.
inline bool is_seen(const Tensor& tensor) { return is_observed() || has_tangent(tensor); }

}  // namespace dorajit::python
