#include "apps/cli/options/targets.h"

#include <algorithm>
#include <format>
#include <vector>

#include "apps/cli/terminal/output.h"
#include "apps/cli/terminal/text_format.h"

namespace dorajit::cli {
namespace {

using compile::cuda_arch_number;
using kernels::DeviceKind;

constexpr std::string_view kNativeCpu = "native-cpu";

// An architecture that is newer than the library's newest is served with PTX, an older one not at
// all.
Status check_supported(compile::NvrtcCompiler& nvrtc, const compile::Target& target) {
  DORAJIT_ASSIGN(const std::string identity, nvrtc.identity());
  DORAJIT_ASSIGN(const std::vector<std::string> known, nvrtc.supported_archs());
  if (std::ranges::contains(known, target.arch)) return {};
  const int number = cuda_arch_number(target.arch).value_or(0);
  const std::string newest = std::ranges::max(
      known, {}, [](const std::string& one) { return cuda_arch_number(one).value_or(0); });
  if (number < cuda_arch_number(newest)) {
    return fail(StatusCode::kNoCompiler,
                std::format("{} does not support {}, only {}; set DORAJIT_NVRTC to a release that "
                            "does",
                            identity, target.arch, joined(known)));
  }
  print_note(std::format("{} does not know {}, only {}: PTX is made, which the driver translates",
                         identity, target.arch, joined(known)));
  return {};
}

}  // namespace

Status check_arch(const std::string& arch) {
  if (arch == kNativeCpu || cuda_arch_number(arch)) return {};
  return fail(StatusCode::kInvalidArgument,
              std::format("--arch {}: unknown architecture; examples: sm_80, sm_90a, {}", arch,
                          kNativeCpu));
}

Result<compile::Target> make_target(Engine& engine, const std::string& arch) {
  if (arch == kNativeCpu) {
    DORAJIT_TRY(engine.kernels().host_compiler().identity());
    DORAJIT_ASSIGN(const device::Device* cpu, engine.device({}));
    return cpu->info().target;
  }
  DORAJIT_TRY(check_arch(arch));
  const int number = *cuda_arch_number(arch);
  compile::Target target = compile::cuda_target(number / 10, number % 10);
  if (target.arch != arch) {
    print_note(
        std::format("{}: kernels are compiled for {}, which a process on such a GPU asks for", arch,
                    target.arch));
  }
  DORAJIT_TRY(check_supported(engine.kernels().nvrtc(), target));
  return target;
}

std::string arch_text(const compile::Target& target) {
  return target.kind == DeviceKind::kCpu ? std::string(kNativeCpu) : target.arch;
}

}  // namespace dorajit::cli
