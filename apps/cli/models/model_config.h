// The linear layers of a model, from the `config.json` that Hugging Face keeps beside its weights.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/cli/models/model_layers.h"
#include "kernel_templates/element_type.h"
#include "runtime/base/error.h"

namespace dorajit::cli {

struct ModelConfig {
  std::string path;
  Model model;                                 // named by its type, with all "all-linear" layers
  std::vector<Projection> only_by_name{};      // what "all-linear" leaves out: the output embedding
  std::optional<kernels::ElementType> type{};  // of its weights
};

// `path` is the file or its folder. Known are blocks like Llama's, with grouped queries, a head
// dimension of their own and experts, and those of Phi-3, GPT-NeoX and GPT-2. A model of an unknown
// type is read as one like Llama's, and a note says so.
Result<ModelConfig> read_model_config(const std::string& path);

}  // namespace dorajit::cli
