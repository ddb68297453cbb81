// The problems that `dorajit prewarm` makes ready.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/cli/models/adapter_config.h"
#include "apps/cli/models/model_layers.h"
#include "apps/cli/options/problem_options.h"
#include "runtime/launch/problem.h"

namespace CLI {  // NOLINT(readability-identifier-naming): not ours
class App;
}

namespace dorajit::cli {

struct PrewarmOptions {
  std::string model;    // config.json or its folder
  std::string adapter;  // adapter_config.json or its folder
  std::vector<std::int64_t> tokens;
  std::vector<std::int64_t> ranks;
  std::vector<std::string> shapes;
  std::string file;  // of problems, one a line
  std::vector<std::string> ops;
  // Without its op; no type: that of the model, or bf16.
  VariantOptions variant{.op = {}, .type = {}, .gain_type = {}, .types = {}};
};

// Declares --model, --adapter, --tokens, --rank, --shapes, --from, --op and what
// add_variant_options() declares.
void add_prewarm_options(CLI::App& app, PrewarmOptions& options);

// What the options name, before it is known for which kind of device.
class PrewarmProblems {
 public:
  // Reads the files of a model, but not one of problems. kInvalidArgument unless the options name
  // just one source of problems.
  static Result<PrewarmProblems> read(const PrewarmOptions& options);

  // Without repeats.
  [[nodiscard]] Result<std::vector<launch::Problem>> on(kernels::DeviceKind kind) const;

  [[nodiscard]] const std::optional<Model>& model() const { return model_; }
  [[nodiscard]] const std::optional<AdapterConfig>& adapter() const { return adapter_; }

 private:
  Status read_model(const PrewarmOptions& options);

  std::optional<Model> model_;  // what is adapted of it
  std::optional<AdapterConfig> adapter_;
  // What a shape of the command line gives the dimensions of any operation, or a layer of a model.
  struct Wanted {
    std::vector<std::int64_t> listed;  // empty of a layer
    std::int64_t tokens = 0;
    std::int64_t out_features = 0;
    std::int64_t in_features = 0;
    std::int64_t rank = 0;

    // 0: a layer gives no such size.
    [[nodiscard]] std::int64_t of_layer(kernels::LayerSize size) const;
  };
  static std::optional<kernels::Sizes> sizes_of(const kernels::Operation& operation,
                                                const Wanted& wanted);

  std::vector<Wanted> wanted_;
  std::vector<kernels::Variant> variants_;
  std::string file_;
};

}  // namespace dorajit::cli
