#include "apps/cli/options/targets.h"

#include <algorithm>
#include <format>
#include <vector>

namespace dorajit::cli {
namespace {

using compile::cuda_arch_number;
using kernels::DeviceKind;

constexpr std::string_view kNativeCpu = "native-cpu";

// All that there were below kOldestCurrentArch. Some release of NVRTC makes code for each.
constexpr int kFormerArchs[] = {10, 11, 12, 13, 20, 21, 30, 32, 35, 37,
                                50, 52, 53, 60, 61, 62, 70, 72, 75};
constexpr int kOldestCurrentArch = 80;

std::string joined(const std::vector<std::string>& texts) {
  std::string text;
  for (const std::string& one : texts) text.append(text.empty() ? "" : ", ").append(one);
  return text;
}

// An NVRTC that is null or cannot be had is not asked what it knows.
Status check_exists(compile::NvrtcCompiler* nvrtc, const std::string& arch) {
  const auto number = cuda_arch_number(arch);
  if (!number) {
    return fail(
        StatusCode::kInvalidArgument,
        std::format("--arch {} is no architecture; examples: sm_80, sm_90a, {}", arch, kNativeCpu));
  }
  if (*number >= kOldestCurrentArch || std::ranges::contains(kFormerArchs, *number)) return {};
  std::string examples = "examples: sm_80, sm_90a";
  if (nvrtc != nullptr) {
    const auto known = nvrtc->supported_archs();
    const auto identity = nvrtc->identity();
    if (known && identity) examples = std::format("{} knows {}", *identity, joined(*known));
  }
  return fail(StatusCode::kInvalidArgument,
              std::format("--arch {}: there is no such architecture; {}", arch, examples));
}

bool is_cpu(const std::string& arch) { return arch == kNativeCpu || arch == "cpu"; }

// Newer architectures than the library's newest are served with PTX; older ones not at all.
Status check_supported(compile::NvrtcCompiler& nvrtc, const std::string& arch, int number) {
  DORAJIT_ASSIGN(const std::string identity, nvrtc.identity());
  DORAJIT_ASSIGN(const std::vector<std::string> known, nvrtc.supported_archs());
  const bool is_older = std::ranges::all_of(known, [number](const std::string& one) {
    return number < cuda_arch_number(one).value_or(0);
  });
  if (!is_older) return {};
  return fail(StatusCode::kNoCompiler,
              std::format("{} makes no code for {}; it knows {}; set DORAJIT_NVRTC to an older one",
                          identity, arch, joined(known)));
}

}  // namespace

Status check_arch(const std::string& arch) {
  return is_cpu(arch) ? Status() : check_exists(nullptr, arch);
}

Result<compile::Target> make_target(Engine& engine, const std::string& arch) {
  if (is_cpu(arch)) {
    DORAJIT_TRY(engine.kernels().host_compiler().identity());
    DORAJIT_ASSIGN(const device::Device* cpu, engine.device({}));
    return cpu->info().target;
  }
  compile::NvrtcCompiler& nvrtc = engine.kernels().nvrtc();
  DORAJIT_TRY(check_exists(&nvrtc, arch));
  DORAJIT_TRY(check_supported(nvrtc, arch, *cuda_arch_number(arch)));
  return compile::Target{.kind = DeviceKind::kCuda, .arch = arch};
}

Result<compile::Target> make_device_target(Engine& engine, const std::string& arch) {
  DORAJIT_ASSIGN(compile::Target target, make_target(engine, arch));
  if (target.kind == DeviceKind::kCpu) return target;
  const int number = *cuda_arch_number(arch);
  target = compile::cuda_target(number / 10, number % 10);
  compile::NvrtcCompiler& nvrtc = engine.kernels().nvrtc();
  DORAJIT_ASSIGN(const std::vector<std::string> known, nvrtc.supported_archs());
  if (std::ranges::contains(known, target.arch)) return target;
  DORAJIT_ASSIGN(const std::string identity, nvrtc.identity());
  return fail(StatusCode::kInvalidArgument,
              std::format("--arch {}: {} does not know {}, only {}; name one of these, or set "
                          "DORAJIT_NVRTC to a release that knows it",
                          arch, identity, target.arch, joined(known)));
}

bool is_same(const compile::Target& a, const compile::Target& b) {
  return a.kind == b.kind && a.arch == b.arch;
}

std::string arch_text(const compile::Target& target) {
  return target.kind == DeviceKind::kCpu ? std::string(kNativeCpu) : target.arch;
}

}  // namespace dorajit::cli
