#include "tests/bindings/c/operation_calls.h"

namespace dorajit::bindings {
namespace {

const DLTensor* raw(const Tensor* tensor) { return tensor != nullptr ? tensor->get() : nullptr; }

}  // namespace

Outcome compose_inner(dorajit_engine* engine, const Tensor& lora, const Tensor& base,
                      const Tensor& gain, double scale, const Tensor& out, const Tensor& inner) {
  return outcome_of([&](dorajit_error** error) {
    return dorajit_compose_inner(engine, nullptr, lora.get(), base.get(), gain.get(), scale,
                                 out.get(), inner.get(), error);
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
