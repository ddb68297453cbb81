// Runs a case of an operation with a tolerance with every config that is valid for it.
#pragma once

#include <format>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "kernel_templates/config_limits.h"
#include "kernel_templates/config_text.h"
#include "kernel_templates/spaces.h"
#include "runtime/device/device.h"
#include "runtime/launch/kernel_cache.h"

namespace dorajit::tests {

struct CaseOutcome {
  std::vector<std::string> failures;
  std::vector<double> values;  // equal for every config
  int configs = 0;
  std::set<int> instructions;  // of the configs, if their template has several (mark i)
};

// Runs `call` with every config of the space that is valid for its sizes and alignment; all must
// give the same bits. Failure messages start with `name`. A Call has variant(), sizes(),
// vector_width(kind), upload(device), and run(device, kernel, values), which returns what is wrong.
template <class Call>
CaseOutcome run_every_config(device::Device& device, launch::KernelCache& kernels, Call call,
                             const std::string& name, kernels::SpaceKind space) {
  CaseOutcome outcome;
  const auto& traits = device.info().traits;
  const int width = call.vector_width(traits.kind);
  if (auto uploaded = call.upload(device); !uploaded) {
    outcome.failures.push_back(uploaded.error().message);
    return outcome;
  }
  std::optional<std::vector<double>> expected;
  for (const kernels::Config& config :
       kernels::config_space(call.variant(), traits, width, space)) {
    if (!kernels::why_config_is_invalid(call.variant(), traits, width, call.sizes(), config)
             .empty()) {
      continue;
    }
    ++outcome.configs;
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
