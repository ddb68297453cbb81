// The runtime: checks a call, finds its kernel, launches it.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "runtime/base/artifact_store.h"
#include "runtime/base/settings.h"
#include "runtime/device/device.h"
#include "runtime/launch/check_call.h"
#include "runtime/launch/config_source.h"
#include "runtime/launch/kernel_cache.h"
#include "runtime/launch/plan_table.h"

namespace dorajit {

// Thread-safe. Must outlive the work that it enqueued and the graphs that captured it. Launching a
// problem that has run before does not allocate, lock, log or read the environment (on the CPU,
// callers take turns at the thread pool).
class Engine {
 public:
  // `artifacts` may be null (compiled code is not stored); `configs` must not be null.
  Engine(Settings settings, std::unique_ptr<Statistics> statistics,
         std::shared_ptr<ArtifactStore> artifacts, std::unique_ptr<launch::ConfigSource> configs);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Enqueues the operation on the stream of the operands' device. The first call of a problem may
  // compile and tune. kCaptureUnsafe if that is needed while the stream is being captured.
  Status run(const launch::Call& call, device::Stream stream);

  // Compiles, tunes and loads the kernel that run() would launch for operands of these shapes,
  // strides, element types and alignments. Their memory is not accessed and may be null. Not on the
  // launch path.
  Status warm_up(const launch::Call& call);

  // What run() currently launches for operands of these shapes, strides, element types and
  // alignments; null until a call or a warm-up has made it. Does not wait. kInvalidArgument for
  // sizes that no config of the plan fits.
  struct ReadyPlan {
    const launch::LaunchPlan* plan = nullptr;
    const launch::PlanChoice* choice = nullptr;
  };
  [[nodiscard]] Result<ReadyPlan> find_ready(const launch::Call& call) const;

  // The plan that run() currently launches for a problem by number. Problems are numbered from 0 in
  // the order in which they were prepared, separately for each device; null beyond the last.
  [[nodiscard]] const launch::LaunchPlan* plan(std::size_t number) const;

  // Prepares what run() would launch. Refuses sizes as launch::check_size() does,
  // and devices as launch::check_device() does.
  Result<launch::ConfigAnswer> prepare(const launch::Problem& problem, const launch::DeviceId& id);

  // The same, but asks the config source even if the problem has been prepared before.
  Result<launch::ConfigAnswer> prepare_again(const launch::Problem& problem,
                                             const launch::DeviceId& id);

  // The device, opened on first use.
  Result<device::Device*> device(const launch::DeviceId& id);

  // The number of CUDA devices; 0 without a driver.
  int cuda_device_count();

  launch::KernelCache& kernels() { return kernels_; }
  [[nodiscard]] const Settings& settings() const { return settings_; }
  [[nodiscard]] const Statistics& statistics() const { return *statistics_; }

 private:
  // One caller at a time per key. `replace`: replaces an existing plan.
  Result<const launch::LaunchPlan*> make_plan(const launch::PlanKey& key,
                                              const launch::Problem& problem,
                                              device::Device& device, bool replace = false);
  // The plan's best choice for calls of these sizes. Makes its kernel if it has none yet; while the
  // stream is being captured, takes the best that has one.
  Result<const launch::PlanChoice*> fitting_choice(const launch::LaunchPlan& plan,
                                                   const kernels::Sizes& sizes,
                                                   device::Stream stream);
  // Replaces the plan with the config source's current answer.
  void renew_plan(const launch::Problem& problem, device::Device& device);
  Result<const launch::LaunchPlan*> find_plan(const launch::Problem& problem,
                                              const launch::DeviceId& id, device::Device& device,
                                              device::Stream stream);

  static constexpr int kMaxDevices = 64;

  const Settings settings_;
  const std::unique_ptr<Statistics> statistics_;
  const std::shared_ptr<ArtifactStore> artifacts_;

  // Devices are declared first, so that they outlive the kernels loaded on them.
  std::mutex devices_mutex_;
  std::array<std::unique_ptr<device::Device>, kMaxDevices + 1> devices_;  // under devices_mutex_
  std::array<std::atomic<device::Device*>, kMaxDevices + 1> opened_{};

  launch::KernelCache kernels_;
  launch::PlanTable plans_;
  SingleFlight<launch::PlanKey> making_;
  const std::unique_ptr<launch::ConfigSource> configs_;
};

}  // namespace dorajit
