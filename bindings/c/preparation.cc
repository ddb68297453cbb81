// dorajit_warmup, dorajit_explain and dorajit_explain_at. They read only the descriptions of
// tensors, never their data.
#include <cstddef>
#include <cstdint>
#include <format>
#include <span>
#include <string_view>

#include "bindings/c/call_operands.h"
#include "bindings/c/engine_handle.h"
#include "bindings/c/error_handle.h"
#include "bindings/c/operation_handle.h"
#include "kernel_templates/registry.h"
#include "runtime/launch/check_call.h"

namespace dorajit::bindings {
namespace {

struct DescribedCall {
  const DLTensor* const* tensors;
  std::int32_t num_tensors;
  const double* scalars;
  std::int32_t num_scalars;
};

// Calls `use` with the engine and with the operation's call.
template <class Use>
Status with_described_call(std::string_view function, dorajit_engine* engine,
                           const dorajit_operation* handle, const DescribedCall& described,
                           const Use& use) {
  const auto [tensors, num_tensors, scalars, num_scalars] = described;
  DORAJIT_TRY(require(engine, function, "engine", "create one with dorajit_engine_create"));
  DORAJIT_ASSIGN(const kernels::Operation* operation,
                 check_tensor_count(function, handle, tensors, num_tensors));
  const std::size_t count = operation->operands.size();
  Operands operands;
  DORAJIT_TRY(operands.read(*operation, std::span(tensors, count)));
  DORAJIT_ASSIGN(const std::span<const double> values,
                 check_described_scalars(function, *operation, scalars, num_scalars));
  DORAJIT_ASSIGN(Engine * served, engine->engine());
  return use(*served, launch::Call{.operation = operation,
                                   .broadcast = operands.broadcast,
                                   .operands = std::span(operands.views).first(count),
                                   .scalars = values});
}

constexpr std::size_t kSmallestExplanation = 32;
static_assert(offsetof(dorajit_explanation, problem) == 8);
static_assert(offsetof(dorajit_explanation, config) == 16);
static_assert(offsetof(dorajit_explanation, source) == 24);
static_assert(offsetof(dorajit_explanation, fingerprint) == kSmallestExplanation);
static_assert(offsetof(dorajit_explanation, device) == 40);
static_assert(offsetof(dorajit_explanation, renewals) == 48);
static_assert(sizeof(dorajit_explanation) >= kSmallestExplanation);

Status check_explanation(std::string_view function, const dorajit_explanation* explanation) {
  DORAJIT_TRY(
      require(explanation, function, "explanation", "pass the address of a dorajit_explanation"));
  return check_struct_size(function, "explanation", "dorajit_explanation", explanation->struct_size,
                           kSmallestExplanation);
}

// `plan` may be null; `choice` is one of it.
void fill(dorajit_explanation* explanation, const launch::LaunchPlan* plan,
          const launch::PlanChoice* choice) {
  dorajit_explanation known{};
  known.problem = known.config = known.source = known.fingerprint = "";
  if (plan != nullptr) {
    const device::DeviceInfo& device = plan->device->info();
    const bool is_cpu = device.traits.kind == kernels::DeviceKind::kCpu;
    known.problem = plan->problem_text.c_str();
    known.config = choice->text.c_str();
    // A string literal, which is null-terminated.
    known.source = launch::name(choice->origin).data();
    known.fingerprint = device.fingerprint.c_str();
    known.device = {.device_type = is_cpu ? kDLCPU : kDLCUDA, .device_id = device.ordinal};
    known.renewals = plan->renewals;
  }
  copy_sized(known, explanation);
}

Status explain_at(const dorajit_engine* engine, std::int64_t index,
                  dorajit_explanation* explanation) {
  constexpr std::string_view kFunction = "explain_at";
  DORAJIT_TRY(require(engine, kFunction, "engine", "create one with dorajit_engine_create"));
  DORAJIT_TRY(check_explanation(kFunction, explanation));
  if (index < 0) {
    return fail(StatusCode::kInvalidArgument,
                std::format("{}: argument `index` is {}; count from 0", kFunction, index));
  }
  const Engine* const served = engine->current_engine();
  const launch::LaunchPlan* const plan =
      served != nullptr ? served->plan(static_cast<std::size_t>(index)) : nullptr;
  fill(explanation, plan, plan != nullptr ? &plan->choices.front() : nullptr);
  return {};
}

}  // namespace
}  // namespace dorajit::bindings

using namespace dorajit;
using namespace dorajit::bindings;

dorajit_status dorajit_warmup(dorajit_engine* engine, const dorajit_operation* operation,
                              const DLTensor* const* tensors, std::int32_t num_tensors,
                              const double* scalars, std::int32_t num_scalars,
                              dorajit_error** error) {
  return guarded(error, [&] {
    return with_described_call(
        "warmup", engine, operation, {tensors, num_tensors, scalars, num_scalars},
        [](Engine& served, const launch::Call& call) { return served.warm_up(call); });
  });
}

dorajit_status dorajit_explain(dorajit_engine* engine, const dorajit_operation* operation,
                               const DLTensor* const* tensors, std::int32_t num_tensors,
                               const double* scalars, std::int32_t num_scalars,
                               dorajit_explanation* explanation, dorajit_error** error) {
  return guarded(error, [&]() -> Status {
    DORAJIT_TRY(check_explanation("explain", explanation));
    return with_described_call("explain", engine, operation,
                               {tensors, num_tensors, scalars, num_scalars},
                               [&](const Engine& served, const launch::Call& call) -> Status {
                                 DORAJIT_ASSIGN(const auto ready, served.find_ready(call));
                                 fill(explanation, ready.plan, ready.choice);
                                 return {};
                               });
  });
}

dorajit_status dorajit_explain_at(const dorajit_engine* engine, int64_t index,
                                  dorajit_explanation* explanation, dorajit_error** error) {
  return guarded(error, [&] { return dorajit::bindings::explain_at(engine, index, explanation); });
}
