#include "tests/bindings/c/operation_calls.h"

namespace dorajit::bindings {
namespace {

const DLTensor* raw(const Tensor* tensor) { return tensor != nullptr ? tensor->get() : nullptr; }

}  // namespace

Outcome compose(dorajit_engine* engine, const ComposeCall& call) {
  const DLTensor* const lora = raw(call.lora);
  const DLTensor* const base = raw(call.base);
  const DLTensor* const gain = raw(call.gain);
  const DLTensor* const out = raw(call.out);
  const DLTensor* const inner = raw(call.inner);
  return outcome_of([&](dorajit_error** error) {
    switch (call.form) {
      case Form::kCompose:
        return dorajit_compose(engine, nullptr, lora, base, gain, call.scale, out, error);
      case Form::kInner:
        return dorajit_compose_inner(engine, nullptr, lora, base, gain, call.scale, out, inner,
                                     error);
      case Form::kResidual:
        break;
    }
    return dorajit_compose_residual(engine, nullptr, lora, base, gain, raw(call.bias), call.scale,
                                    out, inner, error);
  });
}

Outcome backward(dorajit_engine* engine, const BackwardCall& call) {
  return outcome_of([&](dorajit_error** error) {
    return dorajit_backward(engine, nullptr, raw(call.d_out), raw(call.inner), raw(call.gain),
                            call.scale, raw(call.d_lora), raw(call.d_base), raw(call.d_gain),
                            call.workspace, call.workspace_bytes, error);
  });
}

WorkspaceAnswer backward_workspace(const Tensor& d_out, const Tensor& gain) {
  WorkspaceAnswer answer;
  answer.outcome = outcome_of([&](dorajit_error** error) {
    return dorajit_backward_workspace(d_out.get(), gain.get(), &answer.bytes, error);
  });
  return answer;
}

Outcome norm_assembly(dorajit_engine* engine, const Tensor& w_norm_sq, const Tensor& cross,
                      const Tensor& ba_norm_sq, double scale, const Tensor& norm) {
  return outcome_of([&](dorajit_error** error) {
    return dorajit_norm_assembly(engine, nullptr, w_norm_sq.get(), cross.get(), ba_norm_sq.get(),
                                 scale, norm.get(), error);
  });
}

}  // namespace dorajit::bindings
