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
#include "runtime/base/single_flight.h"
#include "runtime/base/statistics.h"
#include "runtime/device/device.h"
#include "runtime/launch/check_call.h"
#include "runtime/launch/config_source.h"
#include "runtime/launch/kernel_cache.h"
#include "runtime/launch/plan_table.h"

namespace dorajit {

// Thread-safe. Must outlive the work that it enqueued and the graphs that captured it. The launch
// of a problem that has run before neither allocates, locks, logs nor reads the environment (on the
// CPU, callers take turns at the thread pool).
class Engine {
 public:
  // `artifacts` may be null (nothing is kept); `configs` may not.
  Engine(Settings settings, std::unique_ptr<Statistics> statistics,
         std::shared_ptr<ArtifactStore> artifacts, std::unique_ptr<launch::ConfigSource> configs);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Enqueues the op on the stream of the operands' device. The first call of a problem may compile
  // and tune; kCaptureUnsafe when it would have to and the stream is being captured.
  Status run(const launch::Call& call, device::Stream stream);

  // Makes ready what run() would launch for operands of these shapes, strides, element types and
  // alignments. Their memory may be null and is not touched. Not on the launch path.
  Status warm_up(const launch::Call& call);

  // What run() launches by now for operands of these shapes, strides, element types and alignments;
  // null until a call or a warm-up has made it ready. Waits for nothing.
  [[nodiscard]] Result<const launch::LaunchPlan*> find_ready(const launch::Call& call) const;

  // What run() launches by now for the problem of that number, which are numbered from 0 in the
  // order in which they were made ready, each on each of its devices; null beyond the last.
  [[nodiscard]] const launch::LaunchPlan* plan(std::size_t number) const;

  // What run() would launch, made ready now. kInvalidArgument for sizes beyond
  // launch::check_size().
  Result<launch::ConfigAnswer> prepare(const launch::Problem& problem, const launch::DeviceId& id);

  // The device, opened on first use.
  Result<device::Device*> device(const launch::DeviceId& id);

  // How many CUDA devices there are; 0 without a driver.
  int cuda_device_count();

  launch::KernelCache& kernels() { return kernels_; }
  [[nodiscard]] const Settings& settings() const { return settings_; }
  [[nodiscard]] const Statistics& statistics() const { return *statistics_; }

 private:
  // One caller at a time for a key; `anew` also where there is a plan by now.
  Result<const launch::LaunchPlan*> make_plan(const launch::PlanKey& key,
                                              const launch::Problem& problem,
                                              device::Device& device, bool anew = false);
  // Puts what the config source answers by now in the place of the plan.
  void renew_plan(const launch::Problem& problem, device::Device& device);
  Result<const launch::LaunchPlan*> find_plan(const launch::Problem& problem,
                                              const launch::DeviceId& id, device::Device& device,
                                              device::Stream stream);

  static constexpr int kMaxDevices = 64;

  const Settings settings_;
  const std::unique_ptr<Statistics> statistics_;
  const std::shared_ptr<ArtifactStore> artifacts_;

  // Devices come first, so that they outlive the kernels that were loaded on them.
  std::mutex devices_mutex_;
  std::array<std::unique_ptr<device::Device>, kMaxDevices + 1> devices_;  // under devices_mutex_
  std::array<std::atomic<device::Device*>, kMaxDevices + 1> opened_{};

  launch::KernelCache kernels_;
  launch::PlanTable plans_;
  SingleFlight<launch::PlanKey> making_;
  const std::unique_ptr<launch::ConfigSource> configs_;
};

}  // namespace dorajit
