// dorajit_engine_plan_count and dorajit_engine_plan: what runs for each problem.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <format>
#include <string_view>

#include "bindings/c/engine_handle.h"
#include "bindings/c/error_handle.h"
#include "bindings/c/sized_struct.h"

namespace dorajit::bindings {
namespace {

constexpr std::size_t kSmallestPlan = 56;
static_assert(offsetof(dorajit_plan, device) == 8);
static_assert(offsetof(dorajit_plan, fingerprint) == 16);
static_assert(offsetof(dorajit_plan, problem) == 24);
static_assert(offsetof(dorajit_plan, config) == 32);
static_assert(offsetof(dorajit_plan, source) == 40);
static_assert(offsetof(dorajit_plan, renewals) == 48);
static_assert(sizeof(dorajit_plan) >= kSmallestPlan);

Status require_engine(std::string_view function, const dorajit_engine* engine) {
  return require(engine, function, "engine", "create one with dorajit_engine_create");
}

Status count_plans(const dorajit_engine* engine, std::int64_t* count) {
  constexpr std::string_view kFunction = "engine_plan_count";
  DORAJIT_TRY(require_engine(kFunction, engine));
  DORAJIT_TRY(require(count, kFunction, "count", "pass where the number goes"));
  const Engine* const whole = engine->whole_engine();
  *count = whole != nullptr ? static_cast<std::int64_t>(whole->plan_count()) : 0;
  return {};
}

dorajit_plan to_c(const launch::LaunchPlan& plan) {
  const device::DeviceInfo& device = plan.device->info();
  const bool is_cpu = device.traits.kind == kernels::DeviceKind::kCpu;
  return {.struct_size = sizeof(dorajit_plan),
          .device = {.device_type = is_cpu ? kDLCPU : kDLCUDA, .device_id = device.ordinal},
          .fingerprint = device.fingerprint.c_str(),
          .problem = plan.problem_text.c_str(),
          .config = plan.config_text.c_str(),
          .source = launch::name(plan.answer.rung).data(),  // a literal, which ends in NUL
          .renewals = plan.renewals};
}

Status read_plan(const dorajit_engine* engine, std::int64_t index, dorajit_plan* plan) {
  constexpr std::string_view kFunction = "engine_plan";
  DORAJIT_TRY(require_engine(kFunction, engine));
  DORAJIT_TRY(require(plan, kFunction, "plan", "pass where the answer goes"));
  const std::size_t wanted = plan->struct_size;
  DORAJIT_TRY(check_struct_size(kFunction, "plan", "dorajit_plan", wanted, kSmallestPlan));
  const Engine* const whole = engine->whole_engine();
  const launch::LaunchPlan* const found =
      whole != nullptr && index >= 0 ? whole->plan(static_cast<std::size_t>(index)) : nullptr;
  if (found == nullptr) {
    return fail(
        StatusCode::kInvalidArgument,
        std::format("{}: argument `index` is {}, and the engine has {} plans; give one from "
                    "0 to dorajit_engine_plan_count() - 1",
                    kFunction, index, whole != nullptr ? whole->plan_count() : 0));
  }
  dorajit_plan known = to_c(*found);
  known.struct_size = wanted;
  std::memset(plan, 0, wanted);
  std::memcpy(plan, &known, std::min(wanted, sizeof known));
  return {};
}

}  // namespace
}  // namespace dorajit::bindings

using dorajit::bindings::guarded;

dorajit_status dorajit_engine_plan_count(const dorajit_engine* engine, int64_t* count,
                                         dorajit_error** error) {
  return guarded(error, [&] { return dorajit::bindings::count_plans(engine, count); });
}

dorajit_status dorajit_engine_plan(const dorajit_engine* engine, int64_t index, dorajit_plan* plan,
                                   dorajit_error** error) {
  return guarded(error, [&] { return dorajit::bindings::read_plan(engine, index, plan); });
}
