#include "runtime/compile/compiler.h"

#include <charconv>
#include <format>
#include <system_error>

#include "kernel_templates/program.h"
#include "runtime/base/hash.h"

namespace dorajit::compile {

Target cuda_target(int major, int minor) {
  return {.kind = kernels::DeviceKind::kCuda, .arch = std::format("sm_{}{}", major, minor)};
}

std::optional<int> cuda_arch_number(std::string_view arch) {
  constexpr std::string_view kPrefix = "sm_";
  if (!arch.starts_with(kPrefix)) return std::nullopt;
  arch.remove_prefix(kPrefix.size());
  if (arch.ends_with('a') || arch.ends_with('f')) arch.remove_suffix(1);
  int number = 0;
  const auto [end, error] = std::from_chars(arch.data(), arch.data() + arch.size(), number);
  if (error != std::errc{} || end != arch.data() + arch.size() || number <= 0) return std::nullopt;
  return number;
}

kernels::SpaceTraits traits_of(const Target& target, int processors) {
  const bool is_cpu = target.kind == kernels::DeviceKind::kCpu;
  return {.kind = target.kind,
          .processors = processors,
          .architecture = is_cpu ? 0 : cuda_arch_number(target.arch).value_or(0)};
}

std::string artifact_key(const CompileRequest& request, const std::string& options,
                         const std::string& compiler_identity) {
  const auto kind = request.target.kind;
  const kernels::Program program = kernels::program_of(request.variant, request.config, kind);
  Hasher hasher("artifact/1");
  hasher.add("sources", kernels::source_identity(request.variant, kind))
      .add("options", options)
      .add("instantiation", program.source.text)
      .add("target", request.target.arch)
      .add("compiler", compiler_identity);
  if (!program.entry.empty()) hasher.add("entry", program.entry);
  return hasher.digest();
}

}  // namespace dorajit::compile
