// Compiles CPU templates to shared objects with the host's C++ compiler.
#pragma once

#include <mutex>
#include <optional>
#include <string>

#include "runtime/compile/compiler.h"

namespace dorajit::compile {

class HostCompiler final : public Compiler {
 public:
  // `name` is Settings::host_compiler: a path or a name; empty to search PATH for c++, g++ and
  // clang++; "none" to use no compiler. `notes` may be null and must outlive this object.
  HostCompiler(std::string name, ArtifactStore* notes);

  Result<std::string> identity() override;
  [[nodiscard]] std::string options(const CompileRequest& request) const override;
  Result<Artifact> compile(const CompileRequest& request) override;

  // The program that compile() runs. kNoCompiler if there is none.
  Result<std::string> program();

 private:
  std::string name_;
  ArtifactStore* notes_;
  std::mutex mutex_;
  std::optional<Result<std::string>> identity_;  // under mutex_
};

}  // namespace dorajit::compile
