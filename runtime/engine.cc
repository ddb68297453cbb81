#include "runtime/engine.h"

#include <format>
#include <optional>
#include <utility>

#include "kernel_templates/config.h"
#include "kernel_templates/sizes.h"
#include "kernel_templates/spaces.h"
#include "kernel_templates/template.h"
#include "runtime/base/fork_guard.h"
#include "runtime/base/log.h"
#include "runtime/device/cpu/cpu_device.h"
#include "runtime/device/cuda/cuda_device.h"
#include "runtime/launch/problem.h"

namespace dorajit {
namespace {

using kernels::DeviceKind;
using launch::DeviceId;
using launch::LaunchPlan;
using launch::Problem;

// Slot 0 is the CPU, slot 1 + n is CUDA device n.
std::size_t slot_of(const DeviceId& id) {
  return id.kind == DeviceKind::kCpu ? 0 : static_cast<std::size_t>(id.ordinal) + 1;
}

DeviceId id_of(const device::Device& device) {
  return {.kind = device.info().traits.kind, .ordinal = device.info().ordinal};
}

kernels::LaunchArguments make_arguments(const launch::Call& call, const kernels::Sizes& sizes) {
  kernels::LaunchArguments arguments;
  arguments.set_sizes(sizes);
  arguments.workspace = call.workspace;
  arguments.set_scalars(call.scalars);
  for (std::size_t i = 0; i < call.operands.size(); ++i) {
    const launch::TensorView& tensor = call.operands[i];
    if (tensor.type == kernels::ElementType::kAbsent) continue;
    arguments.operands[i] = {.data = tensor.data,
                             .row_stride = tensor.rows > 1 ? tensor.row_stride : 0};
  }
  return arguments;
}

// Checks that the device can access the memory of the call.
Status check_pointers(const launch::Call& call, const launch::CheckedCall& checked,
                      device::Device& device) {
  const kernels::Operation& op = *call.operation;
  for (std::size_t i = 0; i < call.operands.size(); ++i) {
    if (!checked.variant.has(i) || call.operands[i].data == nullptr) continue;
    if (auto reachable = device.check_pointer(call.operands[i].data); !reachable) {
      if (reachable.error().code != StatusCode::kWrongDevice) return reachable;
      return fail(reachable.error().code,
                  std::format("{}: argument `{}` {}", op.name, op.operands[i].name,
                              reachable.error().message));
    }
  }
  if (kernels::workspace_bytes(checked.variant, device.info().traits.kind, checked.sizes) == 0)
    return {};
  auto reachable = device.check_pointer(call.workspace);
  if (reachable) return {};
  return fail(reachable.error().code,
              std::format("{}: `workspace` {}", op.name, reachable.error().message));
}

// Limits the config from the config source: no access may be wider than the alignment of the data.
Result<launch::ReadyKernel> ready_kernel(launch::KernelCache& kernels, const Problem& problem,
                                         device::Device& device, const kernels::Config& config) {
  const kernels::SpaceTraits& traits = device.info().traits;
  const std::string why =
      kernels::template_of(problem.variant).fits_by_call
          ? kernels::why_config_is_invalid(problem.variant, traits, config)
          : kernels::why_config_is_invalid(problem.variant, traits, problem.vector_width,
                                           problem.largest_sizes(), config);
  if (!why.empty()) return fail(StatusCode::kUnsupported, why);
  return kernels.get(device, problem.variant, config);
}

Error does_not_fit(const LaunchPlan& plan, const kernels::Sizes& sizes) {
  const kernels::Variant& variant = plan.problem.variant;
  const launch::PlanChoice& standard = plan.choices.back();
  return {.code = StatusCode::kInvalidArgument,
          .message = std::format("{}: {} cannot be computed: with the default config {}, {}",
                                 variant.operation->name,
                                 kernels::to_text(*variant.operation, sizes), standard.text,
                                 kernels::template_of(variant).why_config_does_not_fit(
                                     variant, plan.device->info().traits, sizes, standard.config)),
          .log = {}};
}

bool differs(const launch::ConfigAnswer& one, const launch::ConfigAnswer& other) {
  return one.config != other.config || one.origin != other.origin;
}

}  // namespace

Engine::Engine(Settings settings, std::unique_ptr<Statistics> statistics,
               std::shared_ptr<ArtifactStore> artifacts,
               std::unique_ptr<launch::ConfigSource> configs)
    : settings_(std::move(settings)),
      statistics_(std::move(statistics)),
      artifacts_(std::move(artifacts)),
      kernels_(settings_, artifacts_.get(), *statistics_),
      configs_(std::move(configs)) {
  configs_->set_listener(
      [this](const Problem& problem, device::Device& device) { renew_plan(problem, device); });
}

// Called while the members still exist: the config source's thread may be renewing a plan.
Engine::~Engine() { configs_->close(); }

Result<device::Device*> Engine::device(const DeviceId& id) {
  if (id.ordinal < 0 || id.ordinal >= kMaxDevices) {
    return fail(StatusCode::kInvalidArgument,
                std::format("device ordinal {} is out of range", id.ordinal));
  }
  const std::size_t slot = slot_of(id);
  if (device::Device* opened = opened_[slot].load(std::memory_order_acquire)) return opened;
  const ForkGuard work(Work::kPreparing);
  const std::scoped_lock lock(devices_mutex_);
  if (devices_[slot] == nullptr) {
    if (id.kind == DeviceKind::kCpu) {
      devices_[slot] = std::make_unique<device::CpuDevice>(settings_.cpu_threads);
    } else {
      DORAJIT_ASSIGN(devices_[slot], device::CudaDevice::open(id.ordinal));
    }
    opened_[slot].store(devices_[slot].get(), std::memory_order_release);
  }
  return devices_[slot].get();
}

int Engine::cuda_device_count() { return device::CudaDevice::count().value_or(0); }

Status Engine::run(const launch::Call& call, device::Stream stream) {
  DORAJIT_ASSIGN(const launch::CheckedCall& checked, launch::check_call(call));
  const auto& [variant, sizes, writes_nothing] = checked;
  if (writes_nothing) return {};
  const launch::TensorView& first = call.operands.front();
  const Problem problem = launch::make_problem(variant, sizes, call.operands);

  DORAJIT_ASSIGN(device::Device * device, this->device(first.device));
  if (!settings_.trust_device_pointers) DORAJIT_TRY(check_pointers(call, checked, *device));
  DORAJIT_ASSIGN(const LaunchPlan* plan, find_plan(problem, first.device, *device, stream));
  const kernels::LaunchArguments arguments = make_arguments(call, sizes);
  DORAJIT_ASSIGN(const launch::PlanChoice* choice, fitting_choice(*plan, sizes, stream));
  DORAJIT_TRY(device->launch(*choice->kernel, choice->config, arguments, stream));
  statistics_->launches.fetch_add(1, std::memory_order_relaxed);
  if (plan->answer.launches) plan->answer.launches->fetch_add(1, std::memory_order_relaxed);
  return {};
}

Result<const LaunchPlan*> Engine::find_plan(const Problem& problem, const DeviceId& id,
                                            device::Device& device, device::Stream stream) {
  const launch::PlanKey key = launch::make_plan_key(problem, id);
  if (const LaunchPlan* plan = plans_.find(key)) return plan;
  const ForkGuard work(Work::kPreparing);
  if (device.is_capturing(stream)) {
    if (const LaunchPlan* plan = plans_.find_substitute(problem, device)) return plan;
    return fail(
        StatusCode::kCaptureUnsafe,
        std::format(
            "no kernel is loaded for {} and the stream is being captured into a "
            "graph; warm the operation up with these tensors before the capture (dorajit_warmup, "
            "in Python dorajit.warmup), then capture it again",
            to_text(problem)));
  }
  return make_plan(key, problem, device);
}

Result<const LaunchPlan*> Engine::make_plan(const launch::PlanKey& key, const Problem& problem,
                                            device::Device& device, bool replace) {
  DORAJIT_TRY(launch::check_size(problem));
  DORAJIT_TRY(launch::check_device(problem.variant, device.info().traits.kind));
  const ForkGuard work(Work::kPreparing);
  const auto turn = making_.take_turn(key);
  const LaunchPlan* const present = plans_.find(key);
  if (present != nullptr && !replace) return present;
  kernels_.keep_description_of(*problem.variant.operation);
  launch::ConfigAnswer answer = configs_->find(problem, device, kernels_);
  if (answer.refusal) return std::unexpected(*std::move(answer.refusal));
  auto ready = ready_kernel(kernels_, problem, device, answer.config);
  if (!ready) {
    const kernels::Config fallback = kernels::default_config(
        problem.variant, device.info().traits, problem.vector_width, problem.largest_sizes());
    if (answer.config == fallback) return std::unexpected(std::move(ready).error());
    log_once(LogLevel::kWarning, to_text(problem),
             std::format("config {} of {} cannot be used, the default runs instead: {}",
                         to_text(answer.config), to_text(problem), ready.error().message));
    answer = {.config = fallback, .origin = launch::ConfigOrigin::kDefault};
    ready = kernels_.get(device, problem.variant, fallback);
    DORAJIT_TRY(ready);
  }
  answer.config = ready->config;
  std::vector<launch::PlanChoice> choices = {{.config = answer.config,
                                              .text = to_text(answer.config),
                                              .origin = answer.origin,
                                              .kernel = ready->kernel}};
  if (kernels::template_of(problem.variant).fits_by_call) {
    for (const kernels::Config& config : answer.runners_up) {
      choices.push_back({.config = config, .text = to_text(config), .origin = answer.origin});
    }
    const kernels::Config standard = kernels::default_config(
        problem.variant, device.info().traits, problem.vector_width, problem.largest_sizes());
    DORAJIT_ASSIGN(const auto last, kernels_.get(device, problem.variant, standard));
    choices.push_back({.config = standard, .text = to_text(standard), .kernel = last.kernel});
  }
  const bool is_renewed = present != nullptr && differs(present->answer, answer);
  const std::int64_t renewals = present != nullptr ? present->renewals : 0;
  const LaunchPlan* const made = plans_.insert({.key = key,
                                                .problem = problem,
                                                .device = &device,
                                                .answer = answer,
                                                .choices = std::move(choices),
                                                .problem_text = to_text(problem),
                                                .renewals = renewals + (is_renewed ? 1 : 0)});
  if (is_renewed) statistics_->renewed_plans.fetch_add(1, std::memory_order_relaxed);
  return made;
}

Result<const launch::PlanChoice*> Engine::fitting_choice(const LaunchPlan& plan,
                                                         const kernels::Sizes& sizes,
                                                         device::Stream stream) {
  std::size_t at = plan.fitting(sizes);
  if (at == plan.choices.size()) return std::unexpected(does_not_fit(plan, sizes));
  if (plan.choices[at].kernel != nullptr) return &plan.choices[at];
  const ForkGuard work(Work::kPreparing);
  if (plan.device->is_capturing(stream)) {
    at = plan.fitting(sizes, /*is_loaded=*/true);
    if (at < plan.choices.size()) return &plan.choices[at];
    return fail(
        StatusCode::kCaptureUnsafe,
        std::format("no kernel is loaded for {} of {}; warm it up with these tensors "
                    "before the capture",
                    kernels::to_text(*plan.problem.variant.operation, sizes), plan.problem_text));
  }
  const auto turn = making_.take_turn(plan.key);
  LaunchPlan loaded = *plans_.find(plan.key);  // another thread may have replaced it
  auto& choices = loaded.choices;
  while ((at = loaded.fitting(sizes)) < choices.size() && choices[at].kernel == nullptr) {
    auto ready = ready_kernel(kernels_, loaded.problem, *loaded.device, choices[at].config);
    if (ready) {
      choices[at].kernel = ready->kernel;
    } else {
      choices.erase(choices.begin() + static_cast<std::ptrdiff_t>(at));
    }
  }
  if (at == choices.size()) return std::unexpected(does_not_fit(loaded, sizes));
  return &plans_.insert(std::move(loaded))->choices[at];
}

void Engine::renew_plan(const Problem& problem, device::Device& device) {
  // If this fails, the existing plan stays in use.
  (void)make_plan(launch::make_plan_key(problem, id_of(device)), problem, device, true);
}

Status Engine::warm_up(const launch::Call& call) {
  DORAJIT_ASSIGN(const launch::CheckedCall& checked, launch::check_shapes(call));
  const auto& [variant, sizes, writes_nothing] = checked;
  if (writes_nothing) return {};
  const Problem problem = launch::make_problem(variant, sizes, call.operands);
  const DeviceId& id = call.operands.front().device;
  DORAJIT_TRY(prepare(problem, id));
  const LaunchPlan& plan = *plans_.find(launch::make_plan_key(problem, id));
  DORAJIT_TRY(fitting_choice(plan, sizes, plan.device->own_stream()));
  return {};
}

Result<Engine::ReadyPlan> Engine::find_ready(const launch::Call& call) const {
  DORAJIT_ASSIGN(const launch::CheckedCall checked, launch::check_shapes(call));
  const Problem problem = launch::make_problem(checked.variant, checked.sizes, call.operands);
  const LaunchPlan* const plan =
      plans_.find(launch::make_plan_key(problem, call.operands.front().device));
  if (plan == nullptr) return ReadyPlan{};
  const std::size_t at = plan->fitting(checked.sizes);
  if (at == plan->choices.size()) return std::unexpected(does_not_fit(*plan, checked.sizes));
  return ReadyPlan{.plan = plan, .choice = &plan->choices[at]};
}

const LaunchPlan* Engine::plan(std::size_t number) const {
  // A fork during the lookup leaves the table's lock held in the child, hence the guard.
  const ForkGuard work(Work::kPreparing);
  return plans_.at(number);
}

Result<launch::ConfigAnswer> Engine::prepare(const Problem& problem, const DeviceId& id) {
  DORAJIT_ASSIGN(device::Device * device, this->device(id));
  const launch::PlanKey key = launch::make_plan_key(problem, id);
  if (const LaunchPlan* plan = plans_.find(key)) return plan->answer;
  DORAJIT_ASSIGN(const LaunchPlan* plan, make_plan(key, problem, *device));
  return plan->answer;
}

Result<launch::ConfigAnswer> Engine::prepare_again(const Problem& problem, const DeviceId& id) {
  DORAJIT_ASSIGN(device::Device * device, this->device(id));
  DORAJIT_ASSIGN(const LaunchPlan* plan,
                 make_plan(launch::make_plan_key(problem, id), problem, *device, true));
  return plan->answer;
}

}  // namespace dorajit
