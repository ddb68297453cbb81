// Calls of operations: dorajit_launch, and the named functions, which use the same code.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <format>
#include <iterator>
#include <span>
#include <string>
#include <string_view>

#include "bindings/c/call_operands.h"
#include "bindings/c/engine_handle.h"
#include "bindings/c/error_handle.h"
#include "bindings/c/operation_handle.h"
#include "dorajit/own_kernel.h"
#include "kernel_templates/sizes.h"
#include "runtime/launch/check_call.h"
#include "runtime/launch/kernel_cache.h"
#include "runtime/launch/problem.h"

namespace dorajit::bindings {
namespace {

using kernels::Operation;

struct Workspace {
  void* data = nullptr;
  std::int64_t bytes = 0;
};

Status run(dorajit_engine* engine, void* stream, const Operation& operation,
           std::span<const DLTensor* const> tensors, std::span<const double> scalars,
           const Workspace& workspace) {
  DORAJIT_TRY(require(engine, operation.name, "engine", "create one with dorajit_engine_create"));
  Operands operands;
  DORAJIT_TRY(operands.read(operation, tensors));
  DORAJIT_ASSIGN(Engine * served, engine->engine());
  return served->run({.operation = &operation,
                      .broadcast = operands.broadcast,
                      .operands = std::span(operands.views).first(tensors.size()),
                      .scalars = scalars,
                      .workspace = workspace.data,
                      .workspace_bytes = workspace.bytes},
                     stream);
}

Status launch(dorajit_engine* engine, void* stream, const dorajit_operation* handle,
              const DLTensor* const* tensors, std::int32_t num_tensors, const double* scalars,
              std::int32_t num_scalars, const Workspace& workspace) {
  DORAJIT_ASSIGN(const Operation* operation,
                 check_tensor_count("launch", handle, tensors, num_tensors));
  DORAJIT_ASSIGN(const std::span<const double> values,
                 check_scalars("launch", *operation, scalars, num_scalars));
  return run(engine, stream, *operation, std::span(tensors, operation->operands.size()), values,
             workspace);
}

// The call behind a named function.
template <std::size_t kTensors>
dorajit_status call(dorajit_engine* engine, void* stream, const Operation& operation,
                    const DLTensor* const (&tensors)[kTensors], double scale,
                    const Workspace& workspace, dorajit_error** error) {
  return guarded(error, [&] {
    return run(engine, stream, operation, tensors, std::span(&scale, 1), workspace);
  });
}

// Calls `use` with the operands and the checked shapes of a call with these tensors.
template <class Use>
Status with_checked_shapes(std::string_view function, const dorajit_operation* handle,
                           const DLTensor* const* tensors, std::int32_t num_tensors,
                           std::span<const double> scalars, const Use& use) {
  DORAJIT_ASSIGN(const Operation* operation,
                 check_tensor_count(function, handle, tensors, num_tensors));
  const std::size_t count = operation->operands.size();
  Operands operands;
  DORAJIT_TRY(operands.read(*operation, std::span(tensors, count)));
  const std::span<const launch::TensorView> views = std::span(operands.views).first(count);
  DORAJIT_ASSIGN(const launch::CheckedCall checked,
                 launch::check_shapes({.operation = operation,
                                       .broadcast = operands.broadcast,
                                       .operands = views,
                                       .scalars = scalars}));
  return use(views, checked);
}

// The workspace size, in bytes, of a call with these tensors and scalars.
Status workspace_of(std::string_view function, const dorajit_operation* handle,
                    const DLTensor* const* tensors, std::int32_t num_tensors,
                    std::span<const double> scalars, std::int64_t* bytes) {
  DORAJIT_TRY(require(bytes, function, "bytes", "pass the address of an int64_t"));
  return with_checked_shapes(function, handle, tensors, num_tensors, scalars,
                             [&](const auto& views, const launch::CheckedCall& checked) -> Status {
                               *bytes = kernels::workspace_bytes(
                                   checked.variant, views.front().device.kind, checked.sizes);
                               return {};
                             });
}

Status problem_of(const dorajit_operation* handle, const DLTensor* const* tensors,
                  std::int32_t num_tensors, const double* scalars, std::int32_t num_scalars,
                  char* text, std::size_t capacity) {
  constexpr std::string_view kFunction = "problem";
  DORAJIT_ASSIGN(const Operation* operation,
                 check_tensor_count(kFunction, handle, tensors, num_tensors));
  DORAJIT_ASSIGN(const std::span<const double> values,
                 check_described_scalars(kFunction, *operation, scalars, num_scalars));
  DORAJIT_TRY(require(text, kFunction, "text", "pass memory for the key"));
  return with_checked_shapes(
      kFunction, handle, tensors, num_tensors, values,
      [&](std::span<const launch::TensorView> views, const launch::CheckedCall& checked) -> Status {
        std::string key;
        if (!checked.writes_nothing) {
          const auto problem = launch::make_problem(checked.variant, checked.sizes, views);
          DORAJIT_TRY(launch::check_size(problem));
          DORAJIT_TRY(launch::check_device(checked.variant, views.front().device.kind));
          key = to_text(problem);
        }
        if (key.size() >= capacity) {
          return fail(StatusCode::kInvalidArgument,
                      std::format("{}: `capacity` is {}, but the key has {} characters", kFunction,
                                  capacity, key.size()));
        }
        std::ranges::copy(key, text);
        text[key.size()] = '\0';
        return {};
      });
}

// The same of a backward function that computes the gain's gradient alone. Its other tensors have
// the shapes of these two.
dorajit_status sum_workspace_of(std::string_view function, const Operation& operation,
                                const DLTensor* d_out, const DLTensor* gain, std::int64_t* bytes,
                                dorajit_error** error) {
  const DLTensor* const tensors[] = {d_out, d_out, gain, nullptr, nullptr, gain};
  return guarded(error, [&] {
    return workspace_of(function, to_handle(&operation), tensors, std::size(tensors), {}, bytes);
  });
}

const Operation* const kCompose = &kernels::operation("compose");
const Operation* const kComposeInner = &kernels::operation("compose_inner");
const Operation* const kBackward = &kernels::operation("backward");
const Operation* const kNormAssembly = &kernels::operation("norm_assembly");
const Operation* const kComposeResidual = &kernels::operation("compose_residual");
const Operation* const kResidualBackward = &kernels::operation("residual_backward");

}  // namespace
}  // namespace dorajit::bindings

using namespace dorajit::bindings;

dorajit_status dorajit_launch(dorajit_engine* engine, void* stream,
                              const dorajit_operation* operation, const DLTensor* const* tensors,
                              std::int32_t num_tensors, const double* scalars,
                              std::int32_t num_scalars, void* workspace,
                              std::int64_t workspace_bytes, dorajit_error** error) {
  return guarded(error, [&] {
    return launch(engine, stream, operation, tensors, num_tensors, scalars, num_scalars,
                  {.data = workspace, .bytes = workspace_bytes});
  });
}

dorajit_status dorajit_operation_workspace(const dorajit_operation* operation,
                                           const DLTensor* const* tensors, std::int32_t num_tensors,
                                           std::int64_t* bytes, dorajit_error** error) {
  return guarded(error, [&] {
    return workspace_of("operation_workspace", operation, tensors, num_tensors, {}, bytes);
  });
}

dorajit_status dorajit_kernel_workspace(const dorajit_operation* kernel,
                                        const DLTensor* const* tensors, std::int32_t num_tensors,
                                        const double* scalars, std::int32_t num_scalars,
                                        std::int64_t* bytes, dorajit_error** error) {
  return guarded(error, [&]() -> dorajit::Status {
    constexpr std::string_view kFunction = "kernel_workspace";
    DORAJIT_ASSIGN(const Operation* operation,
                   check_tensor_count(kFunction, kernel, tensors, num_tensors));
    DORAJIT_ASSIGN(const std::span<const double> values,
                   check_described_scalars(kFunction, *operation, scalars, num_scalars));
    return workspace_of(kFunction, kernel, tensors, num_tensors, values, bytes);
  });
}

dorajit_status dorajit_problem(const dorajit_operation* operation, const DLTensor* const* tensors,
                               std::int32_t num_tensors, const double* scalars,
                               std::int32_t num_scalars, char* text, std::size_t capacity,
                               dorajit_error** error) {
  return guarded(error, [&] {
    return problem_of(operation, tensors, num_tensors, scalars, num_scalars, text, capacity);
  });
}

dorajit_status dorajit_compose(dorajit_engine* engine, void* stream, const DLTensor* lora,
                               const DLTensor* base, const DLTensor* gain, double scale,
                               const DLTensor* out, dorajit_error** error) {
  return call(engine, stream, *kCompose, {lora, base, gain, out}, scale, {}, error);
}

dorajit_status dorajit_compose_inner(dorajit_engine* engine, void* stream, const DLTensor* lora,
                                     const DLTensor* base, const DLTensor* gain, double scale,
                                     const DLTensor* out, const DLTensor* inner,
                                     dorajit_error** error) {
  return call(engine, stream, *kComposeInner, {lora, base, gain, out, inner}, scale, {}, error);
}

dorajit_status dorajit_backward_workspace(const DLTensor* d_out, const DLTensor* gain,
                                          std::int64_t* bytes, dorajit_error** error) {
  return sum_workspace_of("backward_workspace", *kBackward, d_out, gain, bytes, error);
}

dorajit_status dorajit_residual_backward_workspace(const DLTensor* d_out, const DLTensor* gain,
                                                   std::int64_t* bytes, dorajit_error** error) {
  return sum_workspace_of("residual_backward_workspace", *kResidualBackward, d_out, gain, bytes,
                          error);
}

dorajit_status dorajit_backward(dorajit_engine* engine, void* stream, const DLTensor* d_out,
                                const DLTensor* inner, const DLTensor* gain, double scale,
                                const DLTensor* d_lora, const DLTensor* d_base,
                                const DLTensor* d_gain, void* workspace,
                                std::int64_t workspace_bytes, dorajit_error** error) {
  return call(engine, stream, *kBackward, {d_out, inner, gain, d_lora, d_base, d_gain}, scale,
              {.data = workspace, .bytes = workspace_bytes}, error);
}

dorajit_status dorajit_norm_assembly(dorajit_engine* engine, void* stream,
                                     const DLTensor* w_norm_sq, const DLTensor* cross,
                                     const DLTensor* ba_norm_sq, double scale, const DLTensor* norm,
                                     dorajit_error** error) {
  return call(engine, stream, *kNormAssembly, {w_norm_sq, cross, ba_norm_sq, norm}, scale, {},
              error);
}

dorajit_status dorajit_compose_residual(dorajit_engine* engine, void* stream, const DLTensor* lora,
                                        const DLTensor* result, const DLTensor* gain,
                                        const DLTensor* bias, double scale, const DLTensor* out,
                                        const DLTensor* inner, dorajit_error** error) {
  return call(engine, stream, *kComposeResidual, {lora, result, gain, bias, out, inner}, scale, {},
              error);
}

dorajit_status dorajit_residual_backward(dorajit_engine* engine, void* stream,
                                         const DLTensor* d_out, const DLTensor* inner,
                                         const DLTensor* gain, double scale, const DLTensor* d_lora,
                                         const DLTensor* d_result, const DLTensor* d_gain,
                                         void* workspace, std::int64_t workspace_bytes,
                                         dorajit_error** error) {
  return call(engine, stream, *kResidualBackward, {d_out, inner, gain, d_lora, d_result, d_gain},
              scale, {.data = workspace, .bytes = workspace_bytes}, error);
}
