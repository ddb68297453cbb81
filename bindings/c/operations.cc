#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <format>
#include <span>
#include <string_view>

#include "bindings/c/broadcast_from_dlpack.h"
#include "bindings/c/engine_handle.h"
#include "bindings/c/error_handle.h"
#include "bindings/c/tensor_from_dlpack.h"
#include "kernel_templates/partial_sums.h"
#include "kernel_templates/registry.h"
#include "runtime/launch/check_call.h"
#include "runtime/launch/size_limit.h"

namespace dorajit::bindings {
namespace {

using kernels::OperandShape;
using kernels::OpSpec;
using kernels::Presence;
using launch::TensorView;

// One element per channel: all dimensions of the tensor, flattened into one row.
Result<TensorView> channels_from_dlpack(const OpSpec& spec, std::size_t operand,
                                        const DLTensor* tensor) {
  const int all = tensor == nullptr ? 1 : tensor->ndim;
  return tensor_from_dlpack(spec.name, spec.operands[operand].name, tensor, std::max(all, 1));
}

// The operands of a call from `tensors` in the registry's order; null for what is left out.
struct Operands {
  std::array<TensorView, kernels::kMaxOperands> views;
  kernels::Broadcast broadcast = kernels::Broadcast::kPerColumn;
};

Result<Operands> operands_from_dlpack(const OpSpec& spec,
                                      std::span<const DLTensor* const> tensors) {
  Operands operands;
  ChannelLayout layout;
  std::string_view broadcast_before;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (spec.operands[i].shape == OperandShape::kBroadcast && tensors[i] != nullptr &&
        tensors.front() != nullptr) {
      const std::string_view name = spec.operands[i].name;
      DORAJIT_ASSIGN(const ChannelLayout found,
                     channel_layout(spec.name, name, *tensors.front(), *tensors[i]));
      if (!broadcast_before.empty() && found != layout) {
        return fail(StatusCode::kUnsupported,
                    std::format("{}: argument `{}` has its channels along another dimension than "
                                "`{}`; give both the same shape",
                                spec.name, name, broadcast_before));
      }
      layout = found;
      broadcast_before = name;
    }
  }
  // Without a broadcast operand nothing tells rows from columns, and one row is the fastest shape.
  if (!spec.has_broadcast && tensors.front() != nullptr) {
    layout.column_dims = std::max(tensors.front()->ndim, 1);
  }
  operands.broadcast = layout.broadcast;
  const auto sum = static_cast<std::size_t>(spec.sum_operand);
  const bool has_sum = sum < tensors.size() && tensors[sum] != nullptr;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Presence presence = spec.operands[i].presence;
    const bool is_left_out = tensors[i] == nullptr && presence != Presence::kRequired;
    if (is_left_out || (presence == Presence::kForSum && !has_sum)) {
      operands.views[i].type = kernels::ElementType::kAbsent;
    } else if (spec.operands[i].shape == OperandShape::kMatrix) {
      DORAJIT_ASSIGN(operands.views[i], tensor_from_dlpack(spec.name, spec.operands[i].name,
                                                           tensors[i], layout.column_dims));
    } else {
      DORAJIT_ASSIGN(operands.views[i], channels_from_dlpack(spec, i, tensors[i]));
    }
  }
  return operands;
}

// What serves a call, its tensors in the registry's order: of the residual forms of the composition
// the one with a bias or the one without.
class ServedCall {
 public:
  ServedCall(kernels::Op op, std::span<const DLTensor* const> tensors) : op_(op) {
    constexpr std::size_t kBias = 3;
    const bool has_no_bias = op == kernels::Op::kComposeBiasedResidual && tensors[kBias] == nullptr;
    if (has_no_bias) op_ = kernels::Op::kComposeResidual;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (!has_no_bias || i != kBias) tensors_[count_++] = tensors[i];
    }
  }

  [[nodiscard]] kernels::Op op() const { return op_; }
  [[nodiscard]] std::span<const DLTensor* const> tensors() const {
    return std::span(tensors_).first(count_);
  }

 private:
  kernels::Op op_;
  std::array<const DLTensor*, kernels::kMaxOperands> tensors_{};
  std::size_t count_ = 0;
};

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

Result<kernels::Op> operation(std::int32_t number) {
  switch (number) {
    case DORAJIT_OP_COMPOSE:
      return kernels::Op::kCompose;
    case DORAJIT_OP_COMPOSE_INNER:
      return kernels::Op::kComposeInner;
    case DORAJIT_OP_BACKWARD:
      return kernels::Op::kBackward;
    case DORAJIT_OP_NORM_ASSEMBLY:
      return kernels::Op::kNormAssembly;
    case DORAJIT_OP_COMPOSE_RESIDUAL:
      return kernels::Op::kComposeBiasedResidual;
    case DORAJIT_OP_RESIDUAL_BACKWARD:
      return kernels::Op::kResidualBackward;
    default:
      return fail(
          StatusCode::kInvalidArgument,
          std::format("warmup: argument `operation` is {}; pass one of DORAJIT_OP_...", number));
  }
}

Status warmup(dorajit_engine* engine, std::int32_t number, const DLTensor* const* tensors,
              std::int32_t num_tensors) {
  constexpr std::string_view kFunction = "warmup";
  DORAJIT_TRY(require(engine, kFunction, "engine", "create one with dorajit_engine_create"));
  DORAJIT_ASSIGN(const kernels::Op op, operation(number));
  const OpSpec& spec = kernels::spec(op);
  const std::size_t wanted = spec.operands.size();
  if (tensors == nullptr || num_tensors < 0 || static_cast<std::size_t>(num_tensors) != wanted) {
    return fail(StatusCode::kInvalidArgument,
                std::format("{}: `{}` has {} tensors but {} are given; pass all of them, NULL for "
                            "those that are left out",
                            kFunction, spec.name, wanted, tensors == nullptr ? 0 : num_tensors));
  }
  const ServedCall served(op, std::span(tensors, wanted));
  const OpSpec& served_spec = kernels::spec(served.op());
  DORAJIT_ASSIGN(const Operands operands, operands_from_dlpack(served_spec, served.tensors()));
  DORAJIT_ASSIGN(Engine * whole, engine->engine());
  return whole->warm_up({.op = served.op(),
                         .broadcast = operands.broadcast,
                         .operands = std::span(operands.views).first(served_spec.operands.size()),
                         .scalars = {}});
}

Status backward_workspace(const DLTensor* d_out, const DLTensor* gain, std::int64_t* bytes) {
  constexpr std::string_view kFunction = "backward_workspace";
  const OpSpec& spec = kernels::spec(kernels::Op::kBackward);
  DORAJIT_TRY(require(bytes, kFunction, "bytes", "pass where the size goes"));
  const DLTensor* const tensors[] = {d_out, nullptr, gain};
  DORAJIT_ASSIGN(const Operands operands, operands_from_dlpack(spec, tensors));
  const TensorView& matrix = operands.views[0];
  const TensorView& channels = operands.views[2];
  // What no call would accept, and arithmetic on sizes could not bear.
  if (operands.broadcast == kernels::Broadcast::kPerColumn && channels.cols != matrix.cols) {
    return fail(StatusCode::kInvalidArgument,
                std::format("{}: argument `gain` has {} elements but `d_out` has {} columns; give "
                            "one element per column",
                            kFunction, channels.cols, matrix.cols));
  }
  if (!launch::span_bytes(matrix)) {
    return fail(StatusCode::kInvalidArgument,
                std::format("{}: argument `d_out` spans more than 2^47 bytes, which is all that a "
                            "process can address; check its shape and strides",
                            kFunction));
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
  return guarded(error, [&] { return dorajit::bindings::backward_workspace(d_out, gain, bytes); });
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

dorajit_status dorajit_warmup(dorajit_engine* engine, std::int32_t operation,
                              const DLTensor* const* tensors, std::int32_t num_tensors,
                              dorajit_error** error) {
  return guarded(
      error, [&] { return dorajit::bindings::warmup(engine, operation, tensors, num_tensors); });
}
