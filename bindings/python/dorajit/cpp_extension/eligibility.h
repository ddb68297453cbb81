// Whether the extension may do a backward pass: the tests of dorajit/operations/eligibility.py,
// which sees to those of forward passes.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "call_table.h"

namespace dorajit::python {

using at::Tensor;

// Set by configure() and never dropped.
inline const CallTable* calls = nullptr;

// Whether somebody besides autograd observes the calls of this thread.
inline bool is_observed() {
  return (c10::impl::tls_local_dispatch_key_set().included_.raw_repr() & *calls->observers) != 0;
}

// Whether forward-mode differentiation follows the tensor.
inline bool has_tangent(const Tensor& tensor) { return tensor._fw_grad(/*level=*/0).defined(); }

// Whether somebody besides autograd sees a call with this tensor.
inline bool is_seen(const Tensor& tensor) { return is_observed() || has_tangent(tensor); }

}  // namespace dorajit::python
