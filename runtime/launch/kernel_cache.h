// Loaded kernels by device and config: from memory, from the artifact store, or compiled now.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "runtime/base/artifact_store.h"
#include "runtime/base/error.h"
#include "runtime/base/settings.h"
#include "runtime/base/single_flight.h"
#include "runtime/base/statistics.h"
#include "runtime/compile/host_compiler.h"
#include "runtime/compile/nvrtc_compiler.h"
#include "runtime/device/device.h"

namespace dorajit::launch {

struct ReadyKernel {
  std::shared_ptr<const device::LoadedKernel> kernel;
  kernels::Config config;  // what to launch it with
  bool is_builtin = false;
  ResourceUsage resources{};   // as its compiler reported them
  std::string artifact_key{};  // of what was loaded, and the hash of its code; of a kernel of the
  std::string code_hash{};     // library itself nothing
};

// Thread-safe. Of several threads that want one kernel, one makes it and the others wait.
class KernelCache {
 public:
  // `artifacts` may be null: then nothing is kept beyond this object. Both must outlive this.
  KernelCache(const Settings& settings, ArtifactStore* artifacts, Statistics& statistics);

  // The kernel of a config. On the CPU a kernel of the library itself serves where the host's
  // compiler cannot, with its own config; that is said once.
  Result<ReadyKernel> get(device::Device& device, const kernels::Variant& variant,
                          const kernels::Config& config);

  // The artifact of a config for any target; needs no device.
  Result<Artifact> build(const compile::Target& target, const kernels::Variant& variant,
                         const kernels::Config& config);

  // Whether the artifacts hold that of a config now.
  bool is_kept(const compile::Target& target, const kernels::Variant& variant,
               const kernels::Config& config);

  // Name and build number of the compiler for a target.
  Result<std::string> compiler_identity(const compile::Target& target);

  compile::NvrtcCompiler& nvrtc() { return nvrtc_; }
  compile::HostCompiler& host_compiler() { return host_compiler_; }

 private:
  compile::Compiler& compiler_for(const compile::Target& target);
  Result<std::string> key_of(const compile::CompileRequest& request);
  Result<Artifact> build(const compile::CompileRequest& request, const std::string& key);
  Result<ReadyKernel> make(device::Device& device, const kernels::Variant& variant,
                           const kernels::Config& compiled);

  ArtifactStore* artifacts_;
  Statistics& statistics_;
  compile::NvrtcCompiler nvrtc_;
  compile::HostCompiler host_compiler_;
  SingleFlight<std::string> making_;
  std::mutex mutex_;
  std::map<std::string, ReadyKernel, std::less<>> ready_;  // under mutex_
};

}  // namespace dorajit::launch
