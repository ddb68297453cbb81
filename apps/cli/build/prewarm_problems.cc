#include "apps/cli/build/prewarm_problems.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstddef>
#include <format>
#include <span>
#include <utility>

#include "apps/cli/models/model_config.h"
#include "apps/cli/options/shapes.h"
#include "kernel_templates/registry.h"
#include "kernel_templates/spaces.h"
#include "runtime/launch/size_limit.h"

namespace dorajit::cli {
namespace {

using kernels::ElementType;

constexpr std::array<std::int64_t, 5> kUsualTokens = {1, 512, 2048, 4096, 8192};

void use_layer_types(kernels::Variant& variant, ElementType gain) {
  const auto& operands = variant.operation->operands;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].usual_type == kernels::UsualType::kOfGain) variant.types[i] = gain;
  }
}

void add_once(std::vector<kernels::Variant>& variants, const kernels::Variant& variant) {
  if (!std::ranges::contains(variants, variant)) variants.push_back(variant);
}

// The forms that the operation lists; else with and without its optional inputs, and each of these
// with and without the outputs that only a backward pass reads.
std::vector<kernels::Variant> forms_of(const kernels::Variant& whole) {
  using kernels::OperandRole;
  const std::span<const unsigned> usual = whole.operation->usual_forms;
  if (!usual.empty()) {
    std::vector<kernels::Variant> forms;
    for (const unsigned given : usual) {
      kernels::Variant& form = forms.emplace_back(whole);
      for (std::size_t i = 0; i < whole.operation->operands.size(); ++i) {
        const bool is_optional =
            whole.operation->operands[i].presence == kernels::Presence::kOptional;
        if (is_optional && (given >> i & 1U) == 0) form.types[i] = ElementType::kAbsent;
      }
    }
    return forms;
  }
  const auto without = [](kernels::Variant variant, OperandRole role) {
    const auto& operands = variant.operation->operands;
    for (std::size_t i = 0; i < operands.size(); ++i) {
      const bool is_for_sum = operands[i].presence == kernels::Presence::kForSum;
      const bool is_optional = operands[i].presence == kernels::Presence::kOptional;
      if ((is_optional && operands[i].role == role) ||
          (is_for_sum && role == OperandRole::kOutput)) {
        variant.types[i] = ElementType::kAbsent;
      }
    }
    return variant;
  };
  const kernels::Variant plain = without(whole, OperandRole::kInput);
  return {whole, without(whole, OperandRole::kOutput), plain, without(plain, OperandRole::kOutput)};
}

// With the types of the options; else with a gain in f32 and with one of the activations' type.
Result<std::vector<kernels::Variant>> make_variants(const PrewarmOptions& options,
                                                    const std::string& usual_type) {
  VariantOptions wanted = options.variant;
  const bool is_exact = !wanted.types.empty();
  std::vector<std::string> ops = options.ops;
  if (ops.empty()) {
    for (const kernels::Operation* op : kernels::offered_operations()) ops.emplace_back(op->name);
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
  std::optional<Error> refusal;
  for (const std::string& op : ops) {
    for (const std::string& gain : gains) {
      wanted.op = op;
      wanted.gain_type = gain;
      wanted.is_per_row = false;
      const auto made = make_variant(wanted);
      // An operation that was not named may lack kernels for these types.
      if (!made && options.ops.empty() && made.error().code == StatusCode::kUnsupported) {
        if (!refusal) refusal = made.error();
        continue;
      }
      DORAJIT_ASSIGN(kernels::Variant variant, made);
      if (options.variant.is_per_row && variant.operation->has_row_form) {
        variant.broadcast = kernels::Broadcast::kPerRow;
      }
      if (!is_exact) {
        use_layer_types(variant, kernels::parse_element_type(gain).value_or(ElementType::kFloat32));
      }
      if (is_exact) {
        add_once(variants, variant);
        continue;
      }
      for (const kernels::Variant& form : forms_of(variant)) {
        if (kernels::is_supported(form)) add_once(variants, form);
      }
    }
  }
  if (variants.empty() && refusal) return std::unexpected(*refusal);
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
  app.add_option(
         "--rank", options.ranks,
         "Ranks of the model's adapters, for norms and low-rank products [that of --adapter]")
      ->option_text("R,...")
      ->delimiter(',')
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 24))
      ->needs(model);
  app.add_option("--shape", options.shapes,
                 "Sizes as ROWSxCOLS, for operations that have as many; may be repeated")
      ->option_text("RxC,...")
      ->delimiter(',')
      ->excludes(model);
  app.add_option("--from", options.file, "Problems from a file, one a line as `show` names them")
      ->option_text("FILE")
      ->excludes(model);
  app.add_option("--op", options.ops, "Only these operations [all]")
      ->option_text("OP,...")
      ->delimiter(',');
  add_own_kernel_options(app, options.own_kernel);
  add_variant_options(app, options.variant);
  app.add_flag("--all-alignments", options.all_alignments,
               "Also for data that is aligned to an element only");
}

Status PrewarmProblems::read_model(const PrewarmOptions& options) {
  DORAJIT_ASSIGN(const ModelConfig config, read_model_config(options.model));
  model_ = config.model;
  if (!options.adapter.empty()) {
    DORAJIT_ASSIGN(adapter_, read_adapter_config(options.adapter));
    DORAJIT_ASSIGN(model_, adapted_layers(config, *adapter_));
  }
  const std::span<const std::int64_t> tokens =
      options.tokens.empty() ? std::span<const std::int64_t>(kUsualTokens) : options.tokens;
  const std::vector<LayerProblem> layers = layer_problems({&*model_, 1}, tokens);
  using kernels::LayerSize;
  for (const LayerProblem& layer : layers) {
    wanted_.push_back({.of_layer = {{LayerSize::kTokens, layer.tokens},
                                    {LayerSize::kOutFeatures, layer.out_features}}});
  }
  std::vector<std::int64_t> ranks = options.ranks;
  if (ranks.empty() && adapter_ && adapter_->rank) ranks.push_back(*adapter_->rank);
  for (const std::int64_t rank : ranks) {
    for (const LayerProblem& layer : layers) {
      wanted_.push_back({.of_layer = {{LayerSize::kTokens, layer.tokens},
                                      {LayerSize::kOutFeatures, layer.out_features},
                                      {LayerSize::kRank, rank}}});
    }
    for (const Projection& projection : model_->projections) {
      wanted_.push_back({.of_layer = {{LayerSize::kOutFeatures, projection.out_features},
                                      {LayerSize::kInFeatures, projection.in_features},
                                      {LayerSize::kRank, rank}}});
    }
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
                      static_cast<int>(!options.file.empty() || !options.own_kernel.file.empty());
  if (sources > 1 || (sources == 0 && options.ops.empty())) {
    return fail(StatusCode::kInvalidArgument,
                "prewarm needs problems: one of --model FILE, --shape RxC, --from FILE and "
                "--kernel FILE.json; or --op OP alone, for every config of an operation");
  }
  if (!options.own_kernel.file.empty()) {
    VariantOptions types = options.variant;
    if (types.type.empty()) types.type = "bf16";
    DORAJIT_ASSIGN(problems.of_own_kernel_,
                   own_kernel_problems(options.own_kernel, types, options.file.empty()));
  }
  problems.file_ = options.file;
  if (!options.own_kernel.file.empty()) return problems;
  problems.all_alignments_ = options.all_alignments;
  for (const std::string& text : options.shapes) {
    // The number of sizes tells which operations it is for.
    DORAJIT_ASSIGN(std::vector<std::int64_t> listed,
                   parse_shape(text, *kernels::offered_operations().front()));
    if (std::ranges::any_of(listed, [](std::int64_t size) { return size < 1; })) {
      return fail(StatusCode::kInvalidArgument,
                  std::format("--shape {}: every size must be at least 1", text));
    }
    problems.wanted_.push_back({.listed = std::move(listed)});
  }
  if (!options.model.empty()) {
    DORAJIT_TRY(problems.read_model(options));
  } else if (options.file.empty()) {
    DORAJIT_ASSIGN(problems.variants_, make_variants(options, "bf16"));
  }
  return problems;
}

// Nothing where a dimension gets no size, or there are more sizes than dimensions.
std::optional<kernels::Sizes> PrewarmProblems::sizes_of(const kernels::Operation& operation,
                                                        const Wanted& wanted) {
  kernels::Sizes sizes{};
  std::size_t next = 0;
  for (std::size_t i = 0; i < operation.dimensions.size(); ++i) {
    const kernels::Dimension& dimension = operation.dimensions[i];
    if (dimension.keying >= kernels::Keying::kDerived) continue;
    if (!wanted.listed.empty()) {
      if (next == wanted.listed.size()) return std::nullopt;
      sizes[i] = wanted.listed[next++];
    }
    if (dimension.layer_size == kernels::LayerSize::kOne) sizes[i] = 1;
    const auto of_layer = wanted.of_layer.find(dimension.layer_size);
    if (sizes[i] == 0 && of_layer != wanted.of_layer.end()) sizes[i] = of_layer->second;
    const bool is_too_large = wanted.listed.empty() && dimension.most > 0 &&
                              sizes[i] > dimension.most;  // then layers do not use it
    if (sizes[i] == 0 || is_too_large) return std::nullopt;
  }
  if (next != wanted.listed.size()) return std::nullopt;
  return sizes;
}

std::vector<VariantSpace> PrewarmProblems::spaces(kernels::DeviceKind kind) const {
  std::vector<VariantSpace> spaces;
  if (!wanted_.empty()) return spaces;
  for (const kernels::Variant& variant : variants_) {
    const int widest = kernels::widest_vector(variant, kind);
    spaces.push_back({.variant = variant, .vector_width = widest});
    if (all_alignments_ && widest > 1) spaces.push_back({.variant = variant, .vector_width = 1});
  }
  return spaces;
}

Result<std::vector<launch::Problem>> PrewarmProblems::on(kernels::DeviceKind kind) const {
  if (!of_own_kernel_.empty() && kind == kernels::DeviceKind::kCpu) {
    return fail(StatusCode::kInvalidArgument,
                "own kernels run on CUDA devices only; name an architecture, as in --arch sm_90");
  }
  std::vector<launch::Problem> problems;
  if (!file_.empty()) {
    ProblemOptions from;
    from.file = file_;
    DORAJIT_ASSIGN(problems, make_problems(from, kind, "prewarm"));
  }
  for (const launch::Problem& problem : of_own_kernel_) {
    if (!std::ranges::contains(problems, problem)) problems.push_back(problem);
  }
  for (const kernels::Variant& variant : variants_) {
    for (const Wanted& wanted : wanted_) {
      const auto sizes = sizes_of(*variant.operation, wanted);
      if (!sizes) continue;
      DORAJIT_TRY(launch::check_size(variant, *sizes));
      const launch::Problem problem = launch::make_problem(variant, kind, *sizes);
      if (!std::ranges::contains(problems, problem)) problems.push_back(problem);
    }
  }
  for (std::size_t i = 0, count = problems.size(); all_alignments_ && i < count; ++i) {
    launch::Problem unaligned = problems[i];
    unaligned.vector_width = 1;
    if (!std::ranges::contains(problems, unaligned)) problems.push_back(unaligned);
  }
  if (!problems.empty() || wanted_.empty()) return problems;
  return fail(
      StatusCode::kInvalidArgument,
      wanted_.front().listed.empty()
          ? "a model's layers have no problem of these operations; give sizes with --shape, "
            "and a norm's rank with --rank or --adapter"
          : "no operation here has as many sizes as --shape gives; name it with --op");
}

}  // namespace dorajit::cli
