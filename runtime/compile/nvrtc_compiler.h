// Compiles CUDA templates to cubins with NVRTC. Needs neither a GPU nor toolkit headers.
#pragma once

#include <chrono>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/compile/compiler.h"
#include "runtime/compile/nvrtc_library.h"
#include "runtime/compile/nvrtc_program.h"
#include "runtime/compile/subprocess.h"

namespace dorajit::compile {

class NvrtcCompiler final : public Compiler {
 public:
  // `hint` is Settings::nvrtc_path. `notes` may be null and must outlive this object. The
  // constructor opens nothing. NVRTC cannot be interrupted: a call that takes longer than `limit`
  // fails, and its thread is abandoned while it still runs. Users' kernels are compiled in
  // processes of `worker` (Settings::worker), which can be killed.
  NvrtcCompiler(std::string hint, ArtifactStore* notes,
                std::chrono::milliseconds limit = kCompileTimeLimit, std::string worker = "none");

  Result<std::string> identity() override;
  [[nodiscard]] std::string options(const CompileRequest& request) const override;
  Result<Artifact> compile(const CompileRequest& request) override;

  // The architectures that NVRTC can make cubins for: "sm_75", ...
  Result<std::vector<std::string>> supported_archs();

 private:
  Result<const NvrtcLibrary*> library();
  Result<std::string> read_build();

  std::string hint_;
  ArtifactStore* notes_;
  const std::chrono::milliseconds limit_;
  const std::string worker_;
  std::mutex mutex_;
  std::optional<Result<NvrtcLibrary>> library_;  // under mutex_ until set, then constant
  std::optional<Result<std::string>> identity_;  // under mutex_
  std::string located_;                          // under mutex_: the file that identity_ describes
};

}  // namespace dorajit::compile
