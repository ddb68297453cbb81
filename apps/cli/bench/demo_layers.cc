#include "apps/cli/bench/demo_layers.h"

#include <format>
#include <map>
#include <utility>

namespace dorajit::cli {

std::span<const DemoModel> demo_models() {
  static const std::vector<DemoModel> models = {
      {"Llama-3.1-8B", {{"k/v", 1024}, {"q/o/down", 4096}, {"gate/up", 14336}}},
      {"Qwen3-8B", {{"k/v", 1024}, {"q/o/down", 4096}, {"gate/up", 12288}}},
      {"Mistral-Small-24B", {{"k/v", 1024}, {"q", 4096}, {"o/down", 5120}, {"gate/up", 32768}}}};
  return models;
}

std::vector<DemoLayer> demo_layers(std::span<const DemoModel> models,
                                   std::span<const std::int64_t> tokens) {
  std::map<std::pair<std::int64_t, std::int64_t>, DemoLayer> by_size;
  for (const std::int64_t count : tokens) {
    for (const DemoModel& model : models) {
      for (const auto& [projections, out_features] : model.layers) {
        DemoLayer& layer = by_size[{count, out_features}];
        layer.tokens = count;
        layer.out_features = out_features;
        layer.uses.push_back({.model = model.name, .projections = projections});
      }
    }
  }
  std::vector<DemoLayer> layers;
  for (auto& [size, layer] : by_size) layers.push_back(std::move(layer));
  return layers;
}

std::string to_text(std::span<const DemoLayer::Use> uses) {
  std::string text;
  for (const auto& [model, projections] : uses) {
    text += std::format("{}{} {}", text.empty() ? "" : ", ", model, projections);
  }
  return text;
}

}  // namespace dorajit::cli
