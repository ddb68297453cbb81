// dorajit_warmup and dorajit_explain: calls of which only the tensors' descriptions are given.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <format>
#include <span>
#include <string_view>

#include "bindings/c/call_operands.h"
#include "bindings/c/engine_handle.h"
#include "bindings/c/error_handle.h"
#include "bindings/c/sized_struct.h"
#include "kernel_templates/registry.h"
#include "runtime/launch/check_call.h"

namespace dorajit::bindings {
namespace {

using kernels::OpSpec;

Result<kernels::Op> operation(std::string_view function, std::int32_t number) {
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
      return fail(StatusCode::kInvalidArgument,
                  std::format("{}: argument `operation` is {}; pass one of DORAJIT_OP_...",
                              function, number));
  }
}

// Hands `use` the engine and the call, without scalars, of the operation of that number.
template <class Use>
Status with_described_call(std::string_view function, dorajit_engine* engine, std::int32_t number,
                           const DLTensor* const* tensors, std::int32_t num_tensors,
                           const Use& use) {
  DORAJIT_TRY(require(engine, function, "engine", "create one with dorajit_engine_create"));
  DORAJIT_ASSIGN(const kernels::Op op, operation(function, number));
  const OpSpec& spec = kernels::spec(op);
  const std::size_t wanted = spec.operands.size();
  if (tensors == nullptr || num_tensors < 0 || static_cast<std::size_t>(num_tensors) != wanted) {
    return fail(StatusCode::kInvalidArgument,
                std::format("{}: `{}` has {} tensors but {} are given; pass all of them, NULL for "
                            "those that are left out",
                            function, spec.name, wanted, tensors == nullptr ? 0 : num_tensors));
  }
  const ServedCall served(op, std::span(tensors, wanted));
  const OpSpec& served_spec = kernels::spec(served.op());
  DORAJIT_ASSIGN(const Operands operands, operands_from_dlpack(served_spec, served.tensors()));
  DORAJIT_ASSIGN(Engine * whole, engine->engine());
  return use(*whole,
             launch::Call{.op = served.op(),
                          .broadcast = operands.broadcast,
                          .operands = std::span(operands.views).first(served_spec.operands.size()),
                          .scalars = {}});
}

constexpr std::size_t kSmallestExplanation = 32;
static_assert(offsetof(dorajit_explanation, problem) == 8);
static_assert(offsetof(dorajit_explanation, config) == 16);
static_assert(offsetof(dorajit_explanation, source) == 24);
static_assert(sizeof(dorajit_explanation) >= kSmallestExplanation);

Status explain(dorajit_engine* engine, std::int32_t number, const DLTensor* const* tensors,
               std::int32_t num_tensors, dorajit_explanation* explanation) {
  constexpr std::string_view kFunction = "explain";
  DORAJIT_TRY(require(explanation, kFunction, "explanation", "pass where the answer goes"));
  const std::size_t wanted = explanation->struct_size;
  DORAJIT_TRY(check_struct_size(kFunction, "explanation", "dorajit_explanation", wanted,
                                kSmallestExplanation));
  return with_described_call(
      kFunction, engine, number, tensors, num_tensors,
      [&](const Engine& whole, const launch::Call& call) -> Status {
        DORAJIT_ASSIGN(const launch::LaunchPlan* plan, whole.find_ready(call));
        dorajit_explanation known{.struct_size = wanted, .problem = "", .config = "", .source = ""};
        if (plan != nullptr) {
          known.problem = plan->problem_text.c_str();
          known.config = plan->config_text.c_str();
          known.source = launch::name(plan->answer.rung).data();  // a literal, which ends in NUL
        }
        std::memset(explanation, 0, wanted);
        std::memcpy(explanation, &known, std::min(wanted, sizeof known));
        return {};
      });
}

}  // namespace
}  // namespace dorajit::bindings

using dorajit::bindings::guarded;

dorajit_status dorajit_warmup(dorajit_engine* engine, std::int32_t operation,
                              const DLTensor* const* tensors, std::int32_t num_tensors,
                              dorajit_error** error) {
  return guarded(error, [&] {
    return dorajit::bindings::with_described_call(
        "warmup", engine, operation, tensors, num_tensors,
        [](dorajit::Engine& whole, const dorajit::launch::Call& call) {
          return whole.warm_up(call);
        });
  });
}

dorajit_status dorajit_explain(dorajit_engine* engine, std::int32_t operation,
                               const DLTensor* const* tensors, std::int32_t num_tensors,
                               dorajit_explanation* explanation, dorajit_error** error) {
  return guarded(error, [&] {
    return dorajit::bindings::explain(engine, operation, tensors, num_tensors, explanation);
  });
}
