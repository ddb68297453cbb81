#include <cstdint>
#include <format>
#include <span>
#include <string_view>

#include "bindings/c/call_operands.h"
#include "bindings/c/engine_handle.h"
#include "bindings/c/error_handle.h"
#include "kernel_templates/partial_sums.h"
#include "kernel_templates/registry.h"
#include "runtime/launch/check_call.h"
#include "runtime/launch/size_limit.h"

namespace dorajit::bindings {
namespace {

using kernels::OpSpec;
using launch::TensorView;

struct Workspace {
  void* data = nullptr;
  std::int64_t bytes = 0;
};

Status run(dorajit_engine* engine, kernels::Op op, void* stream,
           std::span<const DLTensor* const> tensors, double scale,
           const Workspace& workspace = {}) {
  const ServedCall served(op, tensors);
  const OpSpec& spec = kernels::spec(served.op());
  DORAJIT_TRY(require(engine, spec.name, "engine", "create one with dorajit_engine_create"));
  DORAJIT_ASSIGN(const Operands operands, operands_from_dlpack(spec, served.tensors()));
  DORAJIT_ASSIGN(Engine * whole, engine->engine());
  return whole->run({.op = served.op(),
                     .broadcast = operands.broadcast,
                     .operands = std::span(operands.views).first(spec.operands.size()),
                     .scalars = std::span(&scale, 1),
                     .workspace = workspace.data,
                     .workspace_bytes = workspace.bytes},
                    stream);
}

// Of backward and residual_backward, whose tensors and sums are alike.
Status backward_workspace(std::string_view function, const DLTensor* d_out, const DLTensor* gain,
                          std::int64_t* bytes) {
  const OpSpec& spec = kernels::spec(kernels::Op::kBackward);
  DORAJIT_TRY(require(bytes, function, "bytes", "pass where the size goes"));
  const DLTensor* const tensors[] = {d_out, nullptr, gain};
  DORAJIT_ASSIGN(const Operands operands, operands_from_dlpack(spec, tensors));
  const TensorView& matrix = operands.views[0];
  const TensorView& channels = operands.views[2];
  // What no call would accept, and arithmetic on sizes could not bear.
  if (operands.broadcast == kernels::Broadcast::kPerColumn && channels.cols != matrix.cols) {
    return fail(StatusCode::kInvalidArgument,
                std::format("{}: argument `gain` has {} elements but `d_out` has {} columns; give "
                            "one element per column",
                            function, channels.cols, matrix.cols));
  }
  if (!launch::span_bytes(matrix)) {
    return fail(StatusCode::kInvalidArgument,
                std::format("{}: argument `d_out` spans more than 2^47 bytes, which is all that a "
                            "process can address; check its shape and strides",
                            function));
  }
  const bool is_double = matrix.type == kernels::ElementType::kFloat64 ||
                         channels.type == kernels::ElementType::kFloat64;
  const bool is_empty = matrix.rows == 0 || matrix.cols == 0;
  *bytes = is_empty ? 0
                    : kernels::sum_workspace_bytes(operands.broadcast, matrix.rows, matrix.cols,
                                                   channels.cols, is_double ? 8 : 4);
  return {};
}

}  // namespace
}  // namespace dorajit::bindings

using dorajit::bindings::guarded;
using dorajit::kernels::Op;

dorajit_status dorajit_compose(dorajit_engine* engine, void* stream, const DLTensor* lora,
                               const DLTensor* base, const DLTensor* gain, double scale,
                               const DLTensor* out, dorajit_error** error) {
  return guarded(error, [&] {
    const DLTensor* const tensors[] = {lora, base, gain, out};
    return dorajit::bindings::run(engine, Op::kCompose, stream, tensors, scale);
  });
}

dorajit_status dorajit_compose_inner(dorajit_engine* engine, void* stream, const DLTensor* lora,
                                     const DLTensor* base, const DLTensor* gain, double scale,
                                     const DLTensor* out, const DLTensor* inner,
                                     dorajit_error** error) {
  return guarded(error, [&] {
    const DLTensor* const tensors[] = {lora, base, gain, out, inner};
    return dorajit::bindings::run(engine, Op::kComposeInner, stream, tensors, scale);
  });
}

dorajit_status dorajit_backward_workspace(const DLTensor* d_out, const DLTensor* gain,
                                          std::int64_t* bytes, dorajit_error** error) {
  return guarded(error, [&] {
    return dorajit::bindings::backward_workspace("backward_workspace", d_out, gain, bytes);
  });
}

dorajit_status dorajit_residual_backward_workspace(const DLTensor* d_out, const DLTensor* gain,
                                                   std::int64_t* bytes, dorajit_error** error) {
  return guarded(error, [&] {
    return dorajit::bindings::backward_workspace("residual_backward_workspace", d_out, gain, bytes);
  });
}

dorajit_status dorajit_backward(dorajit_engine* engine, void* stream, const DLTensor* d_out,
                                const DLTensor* inner, const DLTensor* gain, double scale,
                                const DLTensor* d_lora, const DLTensor* d_base,
                                const DLTensor* d_gain, void* workspace,
                                std::int64_t workspace_bytes, dorajit_error** error) {
  return guarded(error, [&] {
    const DLTensor* const tensors[] = {d_out, inner, gain, d_lora, d_base, d_gain};
    return dorajit::bindings::run(engine, Op::kBackward, stream, tensors, scale,
                                  {.data = workspace, .bytes = workspace_bytes});
  });
}

dorajit_status dorajit_norm_assembly(dorajit_engine* engine, void* stream,
                                     const DLTensor* w_norm_sq, const DLTensor* cross,
                                     const DLTensor* ba_norm_sq, double scale, const DLTensor* norm,
                                     dorajit_error** error) {
  return guarded(error, [&] {
    const DLTensor* const tensors[] = {w_norm_sq, cross, ba_norm_sq, norm};
    return dorajit::bindings::run(engine, Op::kNormAssembly, stream, tensors, scale);
  });
}

dorajit_status dorajit_compose_residual(dorajit_engine* engine, void* stream, const DLTensor* lora,
                                        const DLTensor* result, const DLTensor* gain,
                                        const DLTensor* bias, double scale, const DLTensor* out,
                                        const DLTensor* inner, dorajit_error** error) {
  return guarded(error, [&] {
    const DLTensor* const tensors[] = {lora, result, gain, bias, out, inner};
    return dorajit::bindings::run(engine, Op::kComposeBiasedResidual, stream, tensors, scale);
  });
}

dorajit_status dorajit_residual_backward(dorajit_engine* engine, void* stream,
                                         const DLTensor* d_out, const DLTensor* inner,
                                         const DLTensor* gain, double scale, const DLTensor* d_lora,
                                         const DLTensor* d_result, const DLTensor* d_gain,
                                         void* workspace, std::int64_t workspace_bytes,
                                         dorajit_error** error) {
  return guarded(error, [&] {
    const DLTensor* const tensors[] = {d_out, inner, gain, d_lora, d_result, d_gain};
    return dorajit::bindings::run(engine, Op::kResidualBackward, stream, tensors, scale,
                                  {.data = workspace, .bytes = workspace_bytes});
  });
}
