#include "runtime/launch/config_source.h"

#include "kernel_templates/spaces.h"

namespace dorajit::launch {

std::string_view name(ConfigOrigin origin) {
  switch (origin) {
    case ConfigOrigin::kLocked:
      return "locked";
    case ConfigOrigin::kPinned:
      return "pinned";
    case ConfigOrigin::kTuned:
      return "tuned";
    case ConfigOrigin::kUserDatabase:
      return "user database";
    case ConfigOrigin::kShippedDatabase:
      return "shipped database";
    case ConfigOrigin::kNearestShape:
      return "nearest shape";
    case ConfigOrigin::kNearestDevice:
      return "nearest device";
    case ConfigOrigin::kDefault:
      return "default";
  }
  return "unknown";
}

ConfigAnswer DefaultConfigs::find(const Problem& problem, device::Device& device, KernelCache&) {
  return {.config = kernels::default_config(problem.variant, device.info().traits,
                                            problem.vector_width, problem.largest_sizes()),
          .origin = ConfigOrigin::kDefault};
}

}  // namespace dorajit::launch
