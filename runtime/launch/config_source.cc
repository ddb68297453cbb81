#include "runtime/launch/config_source.h"

#include "kernel_templates/spaces.h"

namespace dorajit::launch {

std::string_view name(Rung rung) {
  switch (rung) {
    case Rung::kLocked:
      return "locked";
    case Rung::kTuned:
      return "tuned";
    case Rung::kUserDatabase:
      return "user database";
    case Rung::kShippedDatabase:
      return "shipped database";
    case Rung::kNearestShape:
      return "nearest shape";
    case Rung::kNearestDevice:
      return "nearest device";
    case Rung::kDefault:
      return "default";
  }
  return "unknown";
}

ConfigAnswer DefaultConfigs::find(const Problem& problem, device::Device& device, KernelCache&) {
  return {.config = kernels::default_config(problem.variant, device.info().traits,
                                            problem.vector_width, problem.largest_sizes()),
          .rung = Rung::kDefault};
}

}  // namespace dorajit::launch
