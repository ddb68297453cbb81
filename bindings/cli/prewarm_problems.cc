#include "bindings/cli/prewarm_problems.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <string_view>
#include <utility>

#include "bindings/cli/model_config.h"
#include "kernel_templates/registry.h"
#include "runtime/launch/size_limit.h"

namespace dorajit::cli {
namespace {

using kernels::ElementType;
using kernels::Op;

constexpr std::array<std::int64_t, 5> kTokens = {1, 512, 2048, 4096, 8192};

// The norms of a layer's columns are assembled from terms of the gain's type, where the gain is
// made; the result is in the type of the weights.
void use_norm_types(kernels::Variant& variant, ElementType gain) {
  if (variant.op != Op::kNormAssembly) return;
  for (std::size_t i = 0; i + 1 < kernels::spec(variant.op).operands.size(); ++i) {
    variant.types[i] = gain;
  }
}

void add_once(std::vector<kernels::Variant>& variants, const kernels::Variant& variant) {
  if (!std::ranges::contains(variants, variant)) variants.push_back(variant);
}

// As for inference: without the outputs that a backward pass is for.
kernels::Variant without_optional_outputs(kernels::Variant variant) {
  const auto& operands = kernels::spec(variant.op).operands;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].presence != kernels::Presence::kRequired) {
      variant.types[i] = ElementType::kAbsent;
    }
  }
  return variant;
}

// With the types that are asked for, else with a gain in f32 and with one like the rest.
Result<std::vector<kernels::Variant>> make_variants(const PrewarmOptions& options,
                                                    const std::string& usual_type) {
  VariantOptions wanted = options.variant;
  const bool is_exact = !wanted.types.empty();
  std::vector<std::string> ops = options.ops;
  if (ops.empty()) {
    for (const kernels::OpSpec& op : kernels::offered_ops()) ops.emplace_back(op.name);
  }
  if (is_exact && ops.size() > 1) {
    return fail(StatusCode::kInvalidArgument,
                "--types names the types of one operation; name it with --op");
  }
  if (wanted.type.empty()) wanted.type = usual_type;
  std::vector<std::string> gains = {wanted.gain_type};
  if (!is_exact && wanted.gain_type.empty()) {
    gains = wanted.type == "f64" ? std::vector<std::string>{"f64"}
                                 : std::vector<std::string>{"f32", wanted.type};
  }
  std::vector<kernels::Variant> variants;
  for (const std::string& op : ops) {
    for (const std::string& gain : gains) {
      wanted.op = op;
      wanted.gain_type = gain;
      wanted.is_per_row = false;
      DORAJIT_ASSIGN(kernels::Variant variant, make_variant(wanted));
      if (options.variant.is_per_row && kernels::spec(variant.op).has_broadcast) {
        variant.broadcast = kernels::Broadcast::kPerRow;
      }
      if (!is_exact) {
        use_norm_types(variant, kernels::parse_element_type(gain).value_or(ElementType::kFloat32));
      }
      add_once(variants, variant);
      const kernels::Variant least = without_optional_outputs(variant);
      if (!is_exact && kernels::is_supported(least)) add_once(variants, least);
    }
  }
  return variants;
}

}  // namespace

void add_prewarm_options(CLI::App& app, PrewarmOptions& options) {
  CLI::Option* model =
      app.add_option("--model", options.model, "A model's config.json, or the folder that has it")
          ->option_text("FILE");
  app.add_option("--adapter", options.adapter,
                 "The adapter_config.json of a DoRA adapter of the model, or its folder")
      ->option_text("FILE")
      ->needs(model);
  app.add_option("--tokens", options.tokens, "Rows of the model's problems [1,512,2048,4096,8192]")
      ->option_text("N,...")
      ->delimiter(',')
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 24))
      ->needs(model);
  app.add_option("--shapes,--shape", options.shapes, "Sizes as ROWSxCOLS instead")
      ->option_text("RxC,...")
      ->delimiter(',')
      ->excludes(model);
  app.add_option("--from", options.file, "Problems from a file, one a line as `show` names them")
      ->option_text("FILE")
      ->excludes(model);
  app.add_option("--op", options.ops, "Only these operations [all]")
      ->option_text("OP,...")
      ->delimiter(',');
  add_variant_options(app, options.variant);
}

Status PrewarmProblems::read_model(const PrewarmOptions& options) {
  DORAJIT_ASSIGN(const ModelConfig config, read_model_config(options.model));
  model_ = config.model;
  if (!options.adapter.empty()) {
    DORAJIT_ASSIGN(adapter_, read_adapter_config(options.adapter));
    DORAJIT_ASSIGN(model_, adapted_layers(config, *adapter_));
  }
  const std::span<const std::int64_t> tokens =
      options.tokens.empty() ? std::span<const std::int64_t>(kTokens) : options.tokens;
  for (const LayerProblem& layer : layer_problems({&*model_, 1}, tokens)) {
    shapes_.push_back({.rows = layer.tokens, .cols = layer.out_features});
    DORAJIT_TRY(check_shape(shapes_.back()));
  }
  DORAJIT_ASSIGN(
      variants_,
      make_variants(options, config.type ? std::string(kernels::name(*config.type)) : "bf16"));
  return {};
}

Result<PrewarmProblems> PrewarmProblems::read(const PrewarmOptions& options) {
  PrewarmProblems problems;
  const int sources = static_cast<int>(!options.model.empty()) +
                      static_cast<int>(!options.shapes.empty()) +
                      static_cast<int>(!options.file.empty());
  if (sources != 1) {
    return fail(StatusCode::kInvalidArgument,
                "prewarm needs one of --model FILE, --shapes RxC,... and --from FILE");
  }
  problems.file_ = options.file;
  for (const std::string& text : options.shapes) {
    DORAJIT_ASSIGN(const Shape shape, parse_shape(text));
    problems.shapes_.push_back(shape);
  }
  if (!options.model.empty()) {
    DORAJIT_TRY(problems.read_model(options));
  } else if (!options.shapes.empty()) {
    DORAJIT_ASSIGN(problems.variants_, make_variants(options, "bf16"));
  }
  return problems;
}

Result<std::vector<launch::Problem>> PrewarmProblems::on(kernels::DeviceKind kind) const {
  if (!file_.empty()) {
    ProblemOptions from;
    from.file = file_;
    return make_problems(from, kind, "prewarm");
  }
  std::vector<launch::Problem> problems;
  for (const kernels::Variant& variant : variants_) {
    for (const Shape& shape : shapes_) {
      // The norms of a layer are one row.
      const std::int64_t rows = variant.op == Op::kNormAssembly ? 1 : shape.rows;
      DORAJIT_TRY(launch::check_size(variant, rows, shape.cols));
      const launch::Problem problem = launch::make_problem(variant, kind, rows, shape.cols);
      if (!std::ranges::contains(problems, problem)) problems.push_back(problem);
    }
  }
  return problems;
}

}  // namespace dorajit::cli
