// Loaded kernels by device and config: from memory, from the artifact store, or compiled now.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/artifact_store.h"
#include "runtime/base/error.h"
#include "runtime/base/settings.h"
#include "runtime/compile/host_compiler.h"
#include "runtime/compile/nvrtc_compiler.h"
#include "runtime/device/device.h"

namespace dorajit {

// Counts of an engine's work. A test or a user can check with them that something did not happen.
struct Statistics {
  std::atomic<std::int64_t> launches{0};         // kernels launched for callers
  std::atomic<std::int64_t> compilations{0};     // compiler runs that produced an artifact
  std::atomic<std::int64_t> artifact_hits{0};    // artifacts taken from the store
  std::atomic<std::int64_t> builtin_kernels{0};  // kernels that are compiled into the library
  std::atomic<std::int64_t> tuned_problems{0};
  std::atomic<std::int64_t> trials{0};         // configs measured
  std::atomic<std::int64_t> renewed_plans{0};  // plans whose config or source changed later
};

// Of several threads that need the same object, one makes it while the others wait. Thread-safe.
// Keys are compared with ==; few are in progress at a time.
template <class Key>
class SingleFlight {
 public:
  // The right to make the object of a key, held until destruction, even if making it throws.
  class Turn {
   public:
    Turn(SingleFlight& flight, Key key) : flight_(flight), key_(std::move(key)) {
      std::unique_lock lock(flight_.mutex_);
      flight_.made_.wait(lock, [&] { return !std::ranges::contains(flight_.making_, key_); });
      flight_.making_.push_back(key_);
    }
    ~Turn() {
      {
        const std::scoped_lock lock(flight_.mutex_);
        std::erase(flight_.making_, key_);
      }
      flight_.made_.notify_all();
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    SingleFlight& flight_;
    const Key key_;
  };

  // Waits while another thread has the turn. That thread may have made the object: look it up
  // again.
  [[nodiscard]] Turn take_turn(Key key) { return Turn(*this, std::move(key)); }

 private:
  std::mutex mutex_;
  std::condition_variable made_;
  std::vector<Key> making_;  // under mutex_
};

}  // namespace dorajit

namespace dorajit::launch {

struct ReadyKernel {
  std::shared_ptr<const device::LoadedKernel> kernel;
  kernels::Config config;  // the config to launch it with
  bool is_builtin = false;
  ResourceUsage resources{};   // as its compiler reported them
  std::string artifact_key{};  // of the loaded code and of its bytes; empty for a built-in
  std::string code_hash{};     // kernel
};

// kWrongDevice if the variant has no kernel for devices of that kind.
Status check_device(const kernels::Variant& variant, kernels::DeviceKind kind);

// Thread-safe. If several threads request one kernel, one makes it and the others wait. Functions
// that name a device or target refuse those that check_device() refuses.
class KernelCache {
 public:
  using Deadline = std::chrono::steady_clock::time_point;

  // `artifacts` may be null: then compiled code is kept only in this object. Both must outlive this
  // object.
  KernelCache(const Settings& settings, ArtifactStore* artifacts, Statistics& statistics);

  // The kernel of a config. If the host compiler fails, a built-in CPU kernel is used, with its own
  // config; that is logged once. A compilation that can be stopped is stopped at the deadline.
  Result<ReadyKernel> get(device::Device& device, const kernels::Variant& variant,
                          const kernels::Config& config, Deadline deadline = Deadline::max());

  // The artifact of a config for any target. Needs no device.
  Result<Artifact> build(const compile::Target& target, const kernels::Variant& variant,
                         const kernels::Config& config);

  // Whether the artifact store currently contains the artifact of that config.
  bool is_kept(const compile::Target& target, const kernels::Variant& variant,
               const kernels::Config& config);

  // Name and build number of the compiler for a target.
  Result<std::string> compiler_identity(const compile::Target& target);

  // Keeps what other processes can make the operation of among the artifacts, if there is anything:
  // before they are told of its problems.
  void keep_description_of(const kernels::Operation& operation);

  compile::NvrtcCompiler& nvrtc() { return nvrtc_; }
  compile::HostCompiler& host_compiler() { return host_compiler_; }

 private:
  compile::Compiler& compiler_for(const compile::Target& target);
  Result<std::string> key_of(const compile::CompileRequest& request);
  Result<Artifact> build(const compile::CompileRequest& request, const std::string& key);
  Result<ReadyKernel> make(device::Device& device, const kernels::Variant& variant,
                           const kernels::Config& compiled, Deadline deadline);

  ArtifactStore* artifacts_;
  Statistics& statistics_;
  compile::NvrtcCompiler nvrtc_;
  compile::HostCompiler host_compiler_;
  SingleFlight<std::string> making_;
  std::mutex mutex_;
  std::map<std::string, ReadyKernel, std::less<>> ready_;  // under mutex_
  std::set<const kernels::Operation*> described_;          // under mutex_; see keep_description_of
};

}  // namespace dorajit::launch
