// Turns a kernel's template into code for a target. Needs no device.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "kernel_templates/registry.h"
#include "kernel_templates/spaces.h"
#include "runtime/base/artifact_store.h"
#include "runtime/base/error.h"

namespace dorajit::compile {

struct Target {
  kernels::DeviceKind kind = kernels::DeviceKind::kCpu;
  std::string arch;  // "sm_90"; for the CPU "native" and what that means on this machine
};

// That of a GPU of a compute capability. No code here is for an architecture's own features, so
// there is no suffix; whoever compiles ahead of a device names it alike, or the device does not
// find it.
Target cuda_target(int major, int minor);

// The number in "sm_90a"; nothing for what is no architecture.
std::optional<int> cuda_arch_number(std::string_view arch);

// What is known of every device of the target. How many processors it has is not.
kernels::SpaceTraits traits_of(const Target& target, int processors = 1);

struct CompileRequest {
  kernels::Variant variant;
  kernels::Config config;  // its compiled part
  Target target;
};

// Implementations are thread-safe.
class Compiler {
 public:
  virtual ~Compiler() = default;

  // Name and build number. kNoCompiler when there is no usable compiler.
  virtual Result<std::string> identity() = 0;

  // The options of a request, without any path: part of the artifact's identity.
  [[nodiscard]] virtual std::string options(const CompileRequest& request) const = 0;

  // kCompileError carries the whole log.
  virtual Result<Artifact> compile(const CompileRequest& request) = 0;
};

// The identity of the code that a compiler makes of a request (docs/artifacts.md).
std::string artifact_key(const CompileRequest& request, const std::string& options,
                         const std::string& compiler_identity);

}  // namespace dorajit::compile
