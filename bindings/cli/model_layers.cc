#include "bindings/cli/model_layers.h"

#include <map>
#include <utility>

namespace dorajit::cli {
namespace {

constexpr Projection kLlama[] = {{"q", 4096},     {"k", 1024},   {"v", 1024},   {"o", 4096},
                                 {"gate", 14336}, {"up", 14336}, {"down", 4096}};
constexpr Projection kQwen[] = {{"q", 4096},     {"k", 1024},   {"v", 1024},   {"o", 4096},
                                {"gate", 12288}, {"up", 12288}, {"down", 4096}};
constexpr Projection kMistral[] = {{"q", 4096},     {"k", 1024},   {"v", 1024},   {"o", 5120},
                                   {"gate", 32768}, {"up", 32768}, {"down", 5120}};

constexpr Model kModels[] = {
    {"Llama-3.1-8B", kLlama}, {"Qwen3-8B", kQwen}, {"Mistral-Small-24B", kMistral}};

void add_use(LayerProblem& problem, std::string_view model, std::string_view projection) {
  if (problem.uses.empty() || problem.uses.back().model != model) {
    problem.uses.push_back({.model = model, .projections = {}});
  }
  problem.uses.back().projections.push_back(projection);
}

}  // namespace

std::span<const Model> models() { return kModels; }

std::vector<LayerProblem> layer_problems(std::span<const Model> models,
                                         std::span<const std::int64_t> tokens) {
  std::map<std::pair<std::int64_t, std::int64_t>, LayerProblem> by_size;
  for (const std::int64_t count : tokens) {
    for (const Model& model : models) {
      for (const Projection& projection : model.projections) {
        const auto [entry, is_new] = by_size.try_emplace(
            {count, projection.out_features},
            LayerProblem{.tokens = count, .out_features = projection.out_features, .uses = {}});
        add_use(entry->second, model.name, projection.name);
      }
    }
  }
  std::vector<LayerProblem> problems;
  for (auto& [size, problem] : by_size) problems.push_back(std::move(problem));
  return problems;
}

std::string to_text(std::span<const LayerProblem::Use> uses) {
  std::string text;
  for (const LayerProblem::Use& use : uses) {
    text.append(text.empty() ? "" : ", ").append(use.model);
    char separator = ' ';
    for (const std::string_view projection : use.projections) {
      text.push_back(separator);
      text.append(projection);
      separator = '/';
    }
  }
  return text;
}

}  // namespace dorajit::cli
