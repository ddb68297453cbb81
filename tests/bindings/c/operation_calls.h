// Short forms of calls of the operations.
#pragma once

#include <cstdint>

#include "tests/bindings/c/c_abi_fixture.h"

namespace dorajit::bindings {

enum class Form { kCompose, kInner, kResidual };

// The arguments of dorajit_compose, dorajit_compose_inner or dorajit_compose_residual, whose result
// is `base` here; null is passed on as null.
struct ComposeCall {
  Form form = Form::kCompose;
  const Tensor* lora = nullptr;
  const Tensor* base = nullptr;
  const Tensor* gain = nullptr;
  double scale = 1;
  const Tensor* out = nullptr;
  const Tensor* inner = nullptr;
  const Tensor* bias = nullptr;
};
Outcome compose(dorajit_engine* engine, const ComposeCall& call);

// The arguments of dorajit_backward; null is passed on as null.
struct BackwardCall {
  const Tensor* d_out = nullptr;
  const Tensor* inner = nullptr;
  const Tensor* gain = nullptr;
  double scale = 1;
  const Tensor* d_lora = nullptr;
  const Tensor* d_base = nullptr;
  const Tensor* d_gain = nullptr;
  void* workspace = nullptr;
  std::int64_t workspace_bytes = 0;
};
Outcome backward(dorajit_engine* engine, const BackwardCall& call);

struct WorkspaceAnswer {
  Outcome outcome;
  std::int64_t bytes = -1;
};
WorkspaceAnswer backward_workspace(const Tensor& d_out, const Tensor& gain);

Outcome norm_assembly(dorajit_engine* engine, const Tensor& w_norm_sq, const Tensor& cross,
                      const Tensor& ba_norm_sq, double scale, const Tensor& norm);

}  // namespace dorajit::bindings
