// The projections of real models that DoRA adapts: what `dorajit demo` works on.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dorajit::cli {

struct Projection {
  std::string_view name;      // "gate"
  std::int64_t out_features;  // columns of the composition
};

struct Model {
  std::string_view name;
  std::span<const Projection> projections;
};

std::span<const Model> models();

// A composition of tokens x out_features, and every projection that needs it.
struct LayerProblem {
  std::int64_t tokens = 0;
  std::int64_t out_features = 0;

  struct Use {
    std::string_view model;
    std::vector<std::string_view> projections;
  };
  std::vector<Use> uses;
};

// Each size once, in ascending order of tokens, then of features.
std::vector<LayerProblem> layer_problems(std::span<const Model> models,
                                         std::span<const std::int64_t> tokens);

// "Llama-3.1-8B q/o/down, Qwen3-8B q/o/down"
std::string to_text(std::span<const LayerProblem::Use> uses);

}  // namespace dorajit::cli
