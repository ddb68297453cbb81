// The projections of models that DoRA adapts, and the compositions that follow from them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dorajit::cli {

struct Projection {
  std::string path;           // of the module in its block, "mlp.gate_proj"
  std::int64_t out_features;  // columns of the composition
  std::int64_t in_features;
};

struct Model {
  std::string name;
  std::vector<Projection> projections;
};

// The sizes of a transformer block as Llama has it.
struct BlockSizes {
  std::int64_t hidden = 0;
  std::int64_t intermediate = 0;
  std::int64_t heads = 0;
  std::int64_t key_value_heads = 0;
  std::int64_t head_dim = 0;
};

// q, k, v, o
std::vector<Projection> attention_projections(const BlockSizes& sizes);
// gate, up and down of a module, which has `width` features inside.
std::vector<Projection> gated_projections(const std::string& module, std::int64_t width,
                                          std::int64_t hidden);

// The models of `dorajit demo`.
std::span<const Model> models();

// A composition of tokens x out_features, and every projection that needs it. Refers to the names
// of the models that it was made of.
struct LayerProblem {
  std::int64_t tokens = 0;
  std::int64_t out_features = 0;

  struct Use {
    std::string_view model;
    std::vector<std::string_view> projections;  // "gate" for "mlp.gate_proj"
  };
  std::vector<Use> uses;
};

// Each size once, in ascending order of tokens, then of features.
std::vector<LayerProblem> layer_problems(std::span<const Model> models,
                                         std::span<const std::int64_t> tokens);

// "Llama-3.1-8B q/o/down, Qwen3-8B q/o/down"
std::string to_text(std::span<const LayerProblem::Use> uses);

}  // namespace dorajit::cli
