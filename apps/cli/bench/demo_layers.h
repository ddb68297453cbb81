// The compositions of `dorajit demo`: those of the linear layers of three models.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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

}  // namespace dorajit::cli
