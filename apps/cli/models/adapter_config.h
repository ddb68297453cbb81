// Which layers of a model a DoRA adapter adapts, from the `adapter_config.json` that PEFT writes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/cli/models/model_config.h"
#include "runtime/base/error.h"

namespace dorajit::cli {

struct AdapterConfig {
  std::string path;
  std::optional<std::int64_t> rank;
  std::vector<std::string> targets;  // empty: every linear layer
};

// `path` is the file or its folder. kInvalidArgument for an adapter that is not DoRA.
Result<AdapterConfig> read_adapter_config(const std::string& path);

// The layers of the model that the adapter adapts. kInvalidArgument when no target is a layer; a
// note names the targets that are not, if others are.
Result<Model> adapted_layers(const ModelConfig& config, const AdapterConfig& adapter);

}  // namespace dorajit::cli
