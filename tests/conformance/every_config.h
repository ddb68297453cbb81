// Runs a case of an operation with a tolerance with every config that is valid for it.
#pragma once

#include <cstddef>
#include <format>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "kernel_templates/config.h"
#include "kernel_templates/spaces.h"
#include "runtime/device/device.h"
#include "runtime/launch/kernel_cache.h"
#include "tests/conformance/slice.h"

namespace dorajit::tests {

struct CaseOutcome {
  std::vector<std::string> failures;
  std::vector<double> values;            // equal for every config
  std::vector<kernels::Config> configs;  // that were run
  std::set<int> instructions;            // of the configs, if their template has several (mark i)
};

// Runs `call` with every config of the space that is valid for its sizes and alignment, or with
// those of a slice; all must give the same bits. Failure messages start with `name`. A Call has
// variant(), sizes(), vector_width(kind), upload(device), and run(device, kernel, values), which
// returns what is wrong.
template <class Call>
CaseOutcome run_every_config(device::Device& device, launch::KernelCache& kernels, Call call,
                             const std::string& name, kernels::SpaceKind space,
                             const Slice& slice = {}) {
  CaseOutcome outcome;
  const auto& traits = device.info().traits;
  const int width = call.vector_width(traits.kind);
  if (auto uploaded = call.upload(device); !uploaded) {
    outcome.failures.push_back(uploaded.error().message);
    return outcome;
  }
  std::optional<std::vector<double>> expected;
  const std::vector<kernels::Config> configs =
      kernels::config_space(call.variant(), traits, width, space, call.sizes());
  for (std::size_t i = 0; i < configs.size(); ++i) {
    // Every slice has the default too, so that configs of different slices must give the same bits.
    if (i > 0 && !slice.has(i)) continue;
    const kernels::Config& config = configs[i];
    if (!kernels::why_config_is_invalid(call.variant(), traits, width, call.sizes(), config)
             .empty()) {
      continue;
    }
    outcome.configs.push_back(config);
    outcome.instructions.insert(config['i']);
    const std::string which =
        std::format("{}, {} with {}: ", name, kernels::to_text(call.variant()), to_text(config));
    const auto ready = kernels.get(device, call.variant(), config);
    if (!ready) {
      outcome.failures.push_back(which + ready.error().message);
      continue;
    }
    const auto wrong = call.run(device, *ready, outcome.values);
    if (!wrong || !wrong->empty()) {
      outcome.failures.push_back(which + (wrong ? *wrong : wrong.error().message));
    } else if (expected && *expected != outcome.values) {
      outcome.failures.push_back(which + "its bits differ from another config's");
    }
    if (!expected) expected = outcome.values;
  }
  return outcome;
}

}  // namespace dorajit::tests
