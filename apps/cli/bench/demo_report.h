// The results of `dorajit demo`, as text and JSON.
#pragma once

#include <string>
#include <vector>

#include "apps/cli/bench/comparison.h"
#include "apps/cli/bench/demo_layers.h"
#include "apps/cli/options/device_choice.h"
#include "apps/cli/terminal/output.h"
#include "autotune/engine_factory.h"
#include "kernel_templates/registry.h"
#include "runtime/launch/config_source.h"

namespace dorajit::cli {

struct DemoRow {
  DemoLayer layer;
  launch::Problem problem;
  launch::ConfigAnswer answer;
  Comparison comparison;
};

struct DemoReport {
  kernels::Variant variant;
  std::vector<DemoRow> rows;
  int failed = 0;  // problems; their errors were printed before
  double seconds = 0;
};

std::string demo_text(const DemoReport& report, const ChosenDevice& device,
                      const autotune::EngineParts& parts);
Json demo_json(const DemoReport& report, const ChosenDevice& device,
               const autotune::EngineParts& parts);

}  // namespace dorajit::cli
