#include "runtime/compile/compiler.h"

#include <format>

#include "runtime/base/hash.h"

namespace dorajit::compile {

Target cuda_target(int major, int minor) {
  return {.kind = kernels::DeviceKind::kCuda, .arch = std::format("sm_{}{}", major, minor)};
}

std::string artifact_key(const CompileRequest& request, const std::string& options,
                         const std::string& compiler_identity) {
  const auto kind = request.target.kind;
  return Hasher("artifact/1")
      .add("sources", kernels::source_identity(request.variant, kind))
      .add("options", options)
      .add("instantiation", kernels::instantiation(request.variant, request.config, kind))
      .add("target", request.target.arch)
      .add("compiler", compiler_identity)
      .digest();
}

}  // namespace dorajit::compile
