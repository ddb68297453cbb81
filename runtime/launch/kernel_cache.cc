#include "runtime/launch/kernel_cache.h"

#include <format>
#include <utility>

#include "kernel_templates/config.h"
#include "kernel_templates/spaces.h"
#include "kernel_templates/template.h"
#include "runtime/base/artifact_store.h"
#include "runtime/base/hash.h"
#include "runtime/base/log.h"
#include "runtime/device/cpu/cpu_device.h"

namespace dorajit::launch {

using kernels::DeviceKind;

Status check_device(const kernels::Variant& variant, DeviceKind kind) {
  if (kind != DeviceKind::kCpu || !kernels::template_of(variant).cpu_source.empty()) return {};
  return fail(StatusCode::kWrongDevice,
              std::format("{}: there is no kernel for the CPU; use a CUDA device",
                          variant.operation->name));
}

KernelCache::KernelCache(const Settings& settings, ArtifactStore* artifacts, Statistics& statistics)
    : artifacts_(artifacts),
      statistics_(statistics),
      nvrtc_(settings.nvrtc_path, artifacts, compile::kCompileTimeLimit, settings.worker),
      host_compiler_(settings.host_compiler, artifacts) {}

void KernelCache::keep_description_of(const kernels::Operation& operation) {
  if (operation.description.empty() || artifacts_ == nullptr) return;
  {
    const std::scoped_lock lock(mutex_);
    if (!described_.insert(&operation).second) return;
  }
  for (const auto& [key, text] : operation.attachments) {
    keep_text(*artifacts_, std::string(key), text);
  }
  keep_description(*artifacts_, kernels::full_name(operation), operation.description);
}

compile::Compiler& KernelCache::compiler_for(const compile::Target& target) {
  return target.kind == DeviceKind::kCuda ? static_cast<compile::Compiler&>(nvrtc_)
                                          : host_compiler_;
}

Result<std::string> KernelCache::compiler_identity(const compile::Target& target) {
  return compiler_for(target).identity();
}

Result<std::string> KernelCache::key_of(const compile::CompileRequest& request) {
  DORAJIT_TRY(check_device(request.variant, request.target.kind));
  compile::Compiler& compiler = compiler_for(request.target);
  DORAJIT_ASSIGN(const std::string identity, compiler.identity());
  return compile::artifact_key(request, compiler.options(request), identity);
}

Result<Artifact> KernelCache::build(const compile::Target& target, const kernels::Variant& variant,
                                    const kernels::Config& config) {
  const compile::CompileRequest request{.variant = variant, .config = config, .target = target};
  DORAJIT_ASSIGN(const std::string key, key_of(request));
  return build(request, key);
}

bool KernelCache::is_kept(const compile::Target& target, const kernels::Variant& variant,
                          const kernels::Config& config) {
  const auto key = key_of({.variant = variant, .config = config, .target = target});
  return key && artifacts_ != nullptr && artifacts_->find(*key).has_value();
}

Result<Artifact> KernelCache::build(const compile::CompileRequest& request,
                                    const std::string& key) {
  if (const std::string why = kernels::why_config_is_invalid(
          request.variant, compile::traits_of(request.target), request.config);
      !why.empty()) {
    return fail(StatusCode::kUnsupported,
                std::format("config {} of {} is invalid: {}", to_text(request.config),
                            to_text(request.variant), why));
  }
  if (artifacts_ != nullptr) {
    if (auto found = artifacts_->find(key)) {
      statistics_.artifact_hits.fetch_add(1, std::memory_order_relaxed);
      return *std::move(found);
    }
  }
  DORAJIT_ASSIGN(Artifact artifact, compiler_for(request.target).compile(request));
  statistics_.compilations.fetch_add(1, std::memory_order_relaxed);
  if (artifacts_ != nullptr) artifacts_->insert(key, artifact);
  return artifact;
}

Result<ReadyKernel> KernelCache::make(device::Device& device, const kernels::Variant& variant,
                                      const kernels::Config& compiled, Deadline deadline) {
  auto made = [&]() -> Result<ReadyKernel> {
    const compile::CompileRequest request{.variant = variant,
                                          .config = compiled,
                                          .target = device.info().target,
                                          .deadline = deadline};
    DORAJIT_ASSIGN(std::string key, key_of(request));
    DORAJIT_ASSIGN(const Artifact artifact, build(request, key));
    DORAJIT_ASSIGN(auto kernel, device.load(artifact, variant));
    return ReadyKernel{.kernel = std::move(kernel),
                       .config = compiled,
                       .resources = artifact.resources,
                       .artifact_key = std::move(key),
                       .code_hash = hash_hex(artifact.code)};
  }();
  if (made) return made;
  if (device.info().traits.kind == DeviceKind::kCpu) {
    if (auto builtin = device::CpuDevice::builtin(variant)) {
      statistics_.builtin_kernels.fetch_add(1, std::memory_order_relaxed);
      log_once(LogLevel::kWarning, "builtin cpu kernel",
               std::format("CPU kernels cannot be compiled for this machine; the built-in ones "
                           "are used instead and are slower: {}",
                           made.error().message));
      return ReadyKernel{.kernel = std::move(builtin),
                         .config = kernels::builtin_cpu_config(variant),
                         .is_builtin = true};
    }
  }
  return made;
}

Result<ReadyKernel> KernelCache::get(device::Device& device, const kernels::Variant& variant,
                                     const kernels::Config& config, Deadline deadline) {
  const device::DeviceInfo& info = device.info();
  const kernels::Config compiled = kernels::compiled_part(config, info.traits.kind);
  const std::string key = std::format("{}:{}/{}/{}", static_cast<int>(info.traits.kind),
                                      info.ordinal, to_text(variant), to_text(compiled));
  auto with_launch_part = [&](ReadyKernel ready) {
    if (info.traits.kind == DeviceKind::kCpu)
      ready.config.set(kernels::kWarps, config[kernels::kWarps]);
    return ready;
  };
  const auto turn = making_.take_turn(key);
  {
    const std::scoped_lock lock(mutex_);
    if (const auto found = ready_.find(key); found != ready_.end()) {
      return with_launch_part(found->second);
    }
  }
  DORAJIT_ASSIGN(ReadyKernel made, make(device, variant, compiled, deadline));
  const std::scoped_lock lock(mutex_);
  ready_.emplace(key, made);
  return with_launch_part(std::move(made));
}

}  // namespace dorajit::launch
