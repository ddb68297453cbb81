// A config source that knows no winners.
#pragma once

#include "kernel_templates/spaces.h"
#include "runtime/launch/config_source.h"

namespace dorajit::launch {

// Answers every problem with its default config.
class DefaultConfigs final : public ConfigSource {
 public:
  ConfigAnswer find(const Problem& problem, device::Device& device, KernelCache&) override {
    return {.config = kernels::default_config(problem.variant, device.info().traits,
                                              problem.vector_width, problem.largest_sizes()),
            .origin = ConfigOrigin::kDefault};
  }
};

}  // namespace dorajit::launch
