// The problems and config spaces that `dorajit prewarm` compiles for.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "apps/cli/models/adapter_config.h"
#include "apps/cli/models/model_layers.h"
#include "apps/cli/options/own_kernel_options.h"
#include "apps/cli/options/problem_options.h"
#include "runtime/launch/problem.h"

namespace CLI {  // NOLINT(readability-identifier-naming): not ours
class App;
}

namespace dorajit::cli {

// The configs of a variant for data that is aligned to so many elements.
struct VariantSpace {
  kernels::Variant variant;
  int vector_width = 1;
};

struct PrewarmOptions {
  std::string model;    // config.json or its folder
  std::string adapter;  // adapter_config.json or its folder
  std::vector<std::int64_t> tokens;
  std::vector<std::int64_t> ranks;
  std::vector<std::string> shapes;
  std::string file;  // of problems, one a line
  OwnKernelOptions own_kernel;
  std::vector<std::string> ops;
  bool all_alignments = false;  // also for data that is aligned to an element only
  // Without its op; no type: that of the model, or bf16.
  VariantOptions variant{.op = {}, .type = {}, .gain_type = {}, .types = {}};
};

// Declares --model, --adapter, --tokens, --rank, --shape, --from, --op, --all-alignments and what
// add_own_kernel_options() and add_variant_options() declare.
void add_prewarm_options(CLI::App& app, PrewarmOptions& options);

// The problems that the options name, for any kind of device.
class PrewarmProblems {
 public:
  // Reads the files of a model, but not one of problems. kInvalidArgument unless the options name
  // one source of problems, or operations alone.
  static Result<PrewarmProblems> read(const PrewarmOptions& options);

  // Without repeats; empty where the options name operations alone. kInvalidArgument for an own
  // kernel on a CPU.
  [[nodiscard]] Result<std::vector<launch::Problem>> on(kernels::DeviceKind kind) const;
  // The spaces of operations that are named alone; else empty.
  [[nodiscard]] std::vector<VariantSpace> spaces(kernels::DeviceKind kind) const;

  [[nodiscard]] const std::optional<Model>& model() const { return model_; }
  [[nodiscard]] const std::optional<AdapterConfig>& adapter() const { return adapter_; }

 private:
  Status read_model(const PrewarmOptions& options);

  std::optional<Model> model_;  // with the adapted layers only
  std::optional<AdapterConfig> adapter_;
  // Sizes for the dimensions of any operation: from a shape of the command line, or a model's
  // layer.
  struct Wanted {
    std::vector<std::int64_t> listed{};  // of a shape; empty for a layer
    std::map<kernels::LayerSize, std::int64_t> of_layer{};
  };
  static std::optional<kernels::Sizes> sizes_of(const kernels::Operation& operation,
                                                const Wanted& wanted);

  std::vector<Wanted> wanted_;
  std::vector<kernels::Variant> variants_;
  std::string file_;
  std::vector<launch::Problem> of_own_kernel_;
  bool all_alignments_ = false;
};

}  // namespace dorajit::cli
