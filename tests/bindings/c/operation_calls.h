// Short forms of calls of the operations other than compose.
#pragma once

#include <cstdint>

#include "tests/bindings/c/c_abi_fixture.h"

namespace dorajit::bindings {

Outcome compose_inner(dorajit_engine* engine, const Tensor& lora, const Tensor& base,
                      const Tensor& gain, double scale, const Tensor& out, const Tensor& inner);

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
