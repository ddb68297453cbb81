// Lock-free lookup of the plan of each problem.
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
  kernels::Sizes sizes{};  // as in the problem's key

  friend bool operator==(const PlanKey&, const PlanKey&) = default;
};

PlanKey make_plan_key(const Problem& problem, const DeviceId& device);

// A config that calls of a plan run.
struct PlanChoice {
  kernels::Config config;
  std::string text;  // the result of to_text()
  ConfigOrigin origin = ConfigOrigin::kDefault;
  // Null until a call needs it; never of the first choice.
  std::shared_ptr<const device::LoadedKernel> kernel{};
};

struct LaunchPlan {
  PlanKey key;
  Problem problem;
  device::Device* device = nullptr;
  ConfigAnswer answer{};
  // The answer's config; for templates with fits_by_call, also those for calls that it does not
  // fit: its runners-up, then the default.
  std::vector<PlanChoice> choices{};
  std::string problem_text{};  // the result of to_text()
  std::int64_t renewals = 0;   // how often config or source changed
  // Index of the key in the order of its first plans, from 0; set by insert().
  std::size_t number = 0;

  // The first choice, or the first that has its kernel, that fits calls of these sizes;
  // choices.size() if none does.
  [[nodiscard]] std::size_t fitting(const kernels::Sizes& sizes, bool is_loaded = false) const;
};

// Readers neither lock nor allocate; writers exclude each other. Plans and outgrown tables live as
// long as this object, so readers may keep pointers to them.
class PlanTable {
 public:
  PlanTable();
  ~PlanTable();
  PlanTable(const PlanTable&) = delete;
  PlanTable& operator=(const PlanTable&) = delete;

  // Null when the problem has no plan yet.
  [[nodiscard]] const LaunchPlan* find(const PlanKey& key) const;

  // Adds the plan, or replaces the plan with the same key.
  const LaunchPlan* insert(LaunchPlan plan);

  // The current plan of the key with that number; null beyond the last.
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
