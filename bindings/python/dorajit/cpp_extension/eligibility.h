// Whether the extension may do a call: the tests of dorajit/eligibility.py, of its first route
// alone.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "call_table.h"

namespace dorajit::python {

using at::Tensor;

// Set by configure() and never dropped.
inline const CallTable* calls = nullptr;

enum class Route {
  kLaunch,     // one launch and nothing else
  kNode,       // and a node of autograd's graph
  kElsewhere,  // Python finds out
};

// Whether somebody besides autograd observes the calls of this thread.
inline bool is_observed() {
  return (c10::impl::tls_local_dispatch_key_set().included_.raw_repr() & *calls->observers) != 0;
}

// Whether forward-mode differentiation follows the tensor.
inline bool has_tangent(const Tensor& tensor) { return tensor._fw_grad(/*level=*/0).defined(); }

inline bool requires_grad(const Tensor& tensor) { return tensor.requires_grad(); }

// The route of a call with these tensors, of which some may be undefined.
inline Route route(std::initializer_list<const Tensor*> tensors) {
  const auto is_any = [&](bool (*holds)(const Tensor&)) {
    return std::ranges::any_of(tensors,
                               [&](const Tensor* one) { return one->defined() && holds(*one); });
  };
  if (is_observed() || is_any(has_tangent)) return Route::kElsewhere;
  return c10::GradMode::is_enabled() && is_any(requires_grad) ? Route::kNode : Route::kLaunch;
}

}  // namespace dorajit::python
