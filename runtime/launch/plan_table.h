// What to launch for each problem, found without a lock.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kernel_templates/config.h"
#include "runtime/device/device.h"
#include "runtime/launch/config_source.h"
#include "runtime/launch/problem.h"

namespace dorajit::launch {

// A problem on a device, packed for comparison.
struct PlanKey {
  const kernels::Operation* operation = nullptr;
  std::uint64_t what = 0;  // element types, alignment class, device
  kernels::Sizes sizes{};  // as the problem's key has them

  friend bool operator==(const PlanKey&, const PlanKey&) = default;
};

PlanKey make_plan_key(const Problem& problem, const DeviceId& device);

struct LaunchPlan {
  PlanKey key;
  Problem problem;
  device::Device* device = nullptr;
  std::shared_ptr<const device::LoadedKernel> kernel;
  ConfigAnswer answer;       // its config is the one to launch
  std::string problem_text;  // as to_text() has them
  std::string config_text;
  std::int64_t renewals = 0;  // how often config or source have changed
  std::size_t number = 0;     // of the key, from 0, by when it got its first plan; insert() sets it
};

// Readers never lock or allocate; writers exclude each other. Plans and outgrown tables live as
// long as this object, so that a reader may hold on to what it found.
class PlanTable {
 public:
  PlanTable();
  ~PlanTable();
  PlanTable(const PlanTable&) = delete;
  PlanTable& operator=(const PlanTable&) = delete;

  // Null when the problem has no plan yet.
  [[nodiscard]] const LaunchPlan* find(const PlanKey& key) const;

  // Adds the plan, or puts it in the place of the one with its key.
  const LaunchPlan* insert(LaunchPlan plan);

  // What the key of that number has by now; null beyond the last.
  [[nodiscard]] const LaunchPlan* at(std::size_t number) const;

  // Any plan of the variant whose config is valid for the problem on this device, or null.
  [[nodiscard]] const LaunchPlan* find_substitute(const Problem& problem,
                                                  const device::Device& device) const;

 private:
  struct Table;

  mutable std::mutex mutex_;
  std::atomic<Table*> current_;
  std::vector<std::unique_ptr<Table>> tables_;            // under mutex_
  std::vector<std::unique_ptr<const LaunchPlan>> plans_;  // under mutex_
  std::vector<const LaunchPlan*> by_number_;              // under mutex_
};

}  // namespace dorajit::launch
