#include "apps/cli/models/model_layers.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

namespace dorajit::cli {
namespace {

Model model(std::string name, const BlockSizes& sizes) {
  Model made{.name = std::move(name), .projections = attention_projections(sizes)};
  std::ranges::move(gated_projections("mlp", sizes.intermediate, sizes.hidden),
                    std::back_inserter(made.projections));
  return made;
}

// "gate" for "mlp.gate_proj"
std::string_view short_name(std::string_view path) {
  constexpr std::string_view kSuffix = "_proj";
  path = path.substr(path.rfind('.') + 1);
  if (path.ends_with(kSuffix)) path.remove_suffix(kSuffix.size());
  return path;
}

void add_use(LayerProblem& problem, std::string_view model, std::string_view projection) {
  if (problem.uses.empty() || problem.uses.back().model != model) {
    problem.uses.push_back({.model = model, .projections = {}});
  }
  problem.uses.back().projections.push_back(projection);
}

}  // namespace

std::vector<Projection> attention_projections(const BlockSizes& sizes) {
  const std::int64_t keys = sizes.key_value_heads * sizes.head_dim;
  const std::int64_t queries = sizes.heads * sizes.head_dim;
  return {{"self_attn.q_proj", queries, sizes.hidden},
          {"self_attn.k_proj", keys, sizes.hidden},
          {"self_attn.v_proj", keys, sizes.hidden},
          {"self_attn.o_proj", sizes.hidden, queries}};
}

std::vector<Projection> gated_projections(const std::string& module, std::int64_t width,
                                          std::int64_t hidden) {
  return {{module + ".gate_proj", width, hidden},
          {module + ".up_proj", width, hidden},
          {module + ".down_proj", hidden, width}};
}

std::span<const Model> models() {
  static const std::vector<Model> all = {model("Llama-3.1-8B", {.hidden = 4096,
                                                                .intermediate = 14336,
                                                                .heads = 32,
                                                                .key_value_heads = 8,
                                                                .head_dim = 128}),
                                         model("Qwen3-8B", {.hidden = 4096,
                                                            .intermediate = 12288,
                                                            .heads = 32,
                                                            .key_value_heads = 8,
                                                            .head_dim = 128}),
                                         model("Mistral-Small-24B", {.hidden = 5120,
                                                                     .intermediate = 32768,
                                                                     .heads = 32,
                                                                     .key_value_heads = 8,
                                                                     .head_dim = 128})};
  return all;
}

std::vector<LayerProblem> layer_problems(std::span<const Model> models,
                                         std::span<const std::int64_t> tokens) {
  std::map<std::pair<std::int64_t, std::int64_t>, LayerProblem> by_size;
  for (const std::int64_t count : tokens) {
    for (const Model& model : models) {
      for (const Projection& projection : model.projections) {
        const auto [entry, is_new] = by_size.try_emplace(
            {count, projection.out_features},
            LayerProblem{.tokens = count, .out_features = projection.out_features, .uses = {}});
        add_use(entry->second, model.name, short_name(projection.path));
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
