// Compiles a kernel's template for a target. Needs no device.
#pragma once

#include <chrono>
#include <functional>
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
  std::string arch;  // "sm_90"; for the CPU "native" and a description of this machine

  friend bool operator==(const Target&, const Target&) = default;
};

// The target of a GPU by its compute capability, never with an architecture-specific suffix
// (sm_90a): code compiled ahead of time must name the target exactly as the device does, or the
// device does not find it.
Target cuda_target(int major, int minor);

// The number in "sm_90a"; nothing if the text names no architecture.
std::optional<int> cuda_arch_number(std::string_view arch);

// The traits of a usual device of the target: its number of processors is not that of all.
kernels::SpaceTraits traits_of(const Target& target);

struct CompileRequest {
  kernels::Variant variant;
  kernels::Config config;  // only the fields that are compiled in
  Target target;
  // Compilations that can be stopped are stopped then.
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
};

// Implementations are thread-safe.
class Compiler {
 public:
  virtual ~Compiler() = default;

  // Name and build number. kNoCompiler if no compiler is usable.
  virtual Result<std::string> identity() = 0;

  // The options of a request, without paths: part of the artifact's identity.
  [[nodiscard]] virtual std::string options(const CompileRequest& request) const = 0;

  // kCompileError contains the complete log.
  virtual Result<Artifact> compile(const CompileRequest& request) = 0;
};

// The identity of the code that a compiler makes from a request (docs/artifacts.md).
std::string artifact_key(const CompileRequest& request, const std::string& options,
                         const std::string& compiler_identity);

// Calls `find_out` for the file at `path` and stores the result under the file's name, size and
// modification time; later calls return the stored result. `store` may be null.
Result<std::string> remembered_fact(ArtifactStore* store, const std::string& fact,
                                    const std::string& path,
                                    const std::function<Result<std::string>()>& find_out);

}  // namespace dorajit::compile
