// The compositions of `dorajit demo`, and their results as text and JSON.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/cli/bench/comparison.h"
#include "apps/cli/options/device_choice.h"
#include "apps/cli/terminal/output.h"
#include "autotune/engine_factory.h"
#include "kernel_templates/registry.h"
#include "runtime/launch/config_source.h"

namespace dorajit::cli {

// The linear layers of a transformer block with so many output features.
struct DemoModel {
  std::string_view name;
  struct Layers {
    std::string_view projections;  // "q/o/down"
    std::int64_t out_features;
  };
  std::vector<Layers> layers;
};

// A composition of tokens x out_features, and the layers that need it.
struct DemoLayer {
  std::int64_t tokens = 0;
  std::int64_t out_features = 0;

  struct Use {
    std::string_view model;
    std::string_view projections;
  };
  std::vector<Use> uses{};
};

std::span<const DemoModel> demo_models();

// Each size once, in ascending order of tokens, then of features.
std::vector<DemoLayer> demo_layers(std::span<const DemoModel> models,
                                   std::span<const std::int64_t> tokens);

// "Llama-3.1-8B q/o/down, Qwen3-8B q/o/down"
std::string to_text(std::span<const DemoLayer::Use> uses);

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
