#include "apps/cli/build/prewarm_plan.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <format>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "apps/cli/options/variant_options.h"
#include "autotune/search/candidates.h"
#include "autotune/search/set_difference.h"
#include "autotune/sources/fallback_chain.h"
#include "autotune/sources/tuning_config_source.h"
#include "kernel_templates/config.h"
#include "kernel_templates/registry.h"
#include "kernel_templates/spaces.h"
#include "runtime/base/log.h"
#include "runtime/launch/problem.h"

namespace dorajit::cli {
namespace {

using kernels::ElementType;

void add_once(std::vector<kernels::Variant>& variants, const kernels::Variant& variant) {
  if (!std::ranges::contains(variants, variant)) variants.push_back(variant);
}

// With and without its optional inputs, and each of these with and without the outputs that only a
// backward pass reads.
std::vector<kernels::Variant> forms_of(const kernels::Variant& whole) {
  using kernels::OperandRole;
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
Result<std::vector<kernels::Variant>> make_variants(const PrewarmOptions& options) {
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
  if (wanted.type.empty()) wanted.type = "bf16";
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

// Nothing where a shape has more or fewer sizes than the operation.
std::optional<kernels::Sizes> sizes_of(const kernels::Operation& operation,
                                       const std::vector<std::int64_t>& shape) {
  kernels::Sizes sizes{};
  std::size_t next = 0;
  for (std::size_t i = 0; i < operation.dimensions.size(); ++i) {
    if (operation.dimensions[i].keying >= kernels::Keying::kDerived) continue;
    if (next == shape.size()) return std::nullopt;
    sizes[i] = shape[next++];
  }
  if (next != shape.size()) return std::nullopt;
  return sizes;
}

using autotune::LookupResult;

// The fallback chain's answers if nothing is tuned. The driver of that machine is not known, so any
// winner may be stale there: the answers of both databases are made.
std::vector<kernels::Config> answers(const launch::Problem& problem,
                                     const device::DeviceInfo& device,
                                     const autotune::EngineParts& parts) {
  const Settings& settings = parts.engine->settings();
  autotune::TuningSession session(problem, device, autotune::space_kind(settings));
  std::vector<kernels::Config> configs;
  for (const LookupResult& look : find_exact(*parts.store, session)) {
    if (look.answers) configs.push_back(answer_of(look, session).config);
  }
  if (!configs.empty()) return configs;
  const std::vector<LookupResult> looks = find_nearest(*parts.store, session);
  return {answer_of(looks.back(), session).config};
}

}  // namespace

void add_prewarm_options(CLI::App& app, PrewarmOptions& options) {
  app.add_option("--shape", options.shapes,
                 "Sizes as ROWSxCOLS, for operations that have as many; may be repeated")
      ->option_text("RxC,...")
      ->delimiter(',');
  app.add_option("--from", options.file, "Problems from a file, one a line as `show` names them")
      ->option_text("FILE");
  app.add_option("--op", options.ops, "Only these operations [all]")
      ->option_text("OP,...")
      ->delimiter(',');
  add_own_kernel_options(app, options.own_kernel);
  add_variant_options(app, options.variant);
  app.add_flag("--all-alignments", options.all_alignments,
               "Also for data that is aligned to an element only");
}

Result<PrewarmProblems> PrewarmProblems::read(const PrewarmOptions& options) {
  PrewarmProblems problems;
  const bool has_file = !options.file.empty() || !options.own_kernel.file.empty();
  const bool has_shapes = !options.shapes.empty();
  if ((has_file && has_shapes) || (!has_file && !has_shapes && options.ops.empty())) {
    return fail(StatusCode::kInvalidArgument,
                "prewarm needs problems: one of --shape RxC, --from FILE and --kernel FILE.json; "
                "or --op OP alone, for every config of an operation. Those of a model come from "
                "`python -m dorajit.prewarm --list`");
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
    problems.shapes_.push_back(std::move(listed));
  }
  if (options.file.empty()) {
    DORAJIT_ASSIGN(problems.variants_, make_variants(options));
  }
  return problems;
}

std::vector<VariantSpace> PrewarmProblems::spaces(kernels::DeviceKind kind) const {
  std::vector<VariantSpace> spaces;
  if (!shapes_.empty()) return spaces;
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
    for (const std::vector<std::int64_t>& shape : shapes_) {
      const auto sizes = sizes_of(*variant.operation, shape);
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
  if (!problems.empty() || shapes_.empty()) return problems;
  return fail(StatusCode::kInvalidArgument,
              "no operation here has as many sizes as --shape gives; name it with --op");
}

bool ArtifactBuild::spills() const {
  return artifact &&
         (artifact->resources.spill_store_bytes > 0 || artifact->resources.spill_load_bytes > 0);
}

void build_all(std::vector<ArtifactBuild>& builds, launch::KernelCache& kernels, int jobs,
               const std::function<void(const ArtifactBuild&)>& done) {
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < builds.size(); i = next++) {
      ArtifactBuild& build = builds[i];
      build.artifact = kernels.build(build.target, build.variant, build.config);
      done(build);
    }
  };
  const auto wanted = std::min(builds.size(), static_cast<std::size_t>(std::max(jobs, 1)));
  std::vector<std::thread> helpers;
  try {
    while (helpers.size() + 1 < wanted) helpers.emplace_back(work);
  } catch (const std::system_error&) {
    log(LogLevel::kDebug, "no more threads can be made: fewer kernels are compiled at a time");
  }
  work();
  for (std::thread& helper : helpers) helper.join();
}

std::string form_of(const compile::Target& target, const Artifact& artifact) {
  if (target.kind == kernels::DeviceKind::kCpu) return "shared object";
  return artifact.code.starts_with(
             "\x7f"
             "ELF")
             ? "cubin"
             : "ptx";
}

std::vector<device::DeviceInfo> devices_of(const compile::Target& target,
                                           const std::vector<launch::Problem>& problems,
                                           const device::DeviceInfo* here,
                                           cache::TuningStore& store) {
  std::set<std::string> variants;
  for (const launch::Problem& problem : problems) variants.insert(to_text(problem.variant));
  const std::string part = std::format("/{}/", target.arch);  // of a GPU's fingerprint
  std::set<std::string> fingerprints;
  if (target.kind == kernels::DeviceKind::kCuda) {
    for (const std::string& variant : variants) {
      for (const cache::Winner& winner : store.winners_of_variant(variant)) {
        if (winner.device.contains(part)) fingerprints.insert(winner.device);
      }
    }
  }
  std::vector<device::DeviceInfo> devices;
  if (here != nullptr) {
    devices.push_back(*here);
    fingerprints.erase(here->fingerprint);
  }
  if (fingerprints.empty() && here == nullptr) fingerprints.insert(std::format("cuda{}", part));
  for (const std::string& fingerprint : fingerprints) {
    devices.push_back({.traits = compile::traits_of(target),
                       .name = fingerprint,
                       .fingerprint = fingerprint,
                       .driver_version = {},
                       .target = target});
  }
  return devices;
}

std::vector<ArtifactBuild> plan_prewarm(const compile::Target& target,
                                        const std::vector<launch::Problem>& problems,
                                        const std::vector<VariantSpace>& spaces,
                                        const std::vector<device::DeviceInfo>& devices,
                                        const autotune::EngineParts& parts, int max_configs) {
  const Settings& settings = parts.engine->settings();
  const kernels::SpaceKind kind = autotune::space_kind(settings);
  const kernels::SpaceTraits& traits = devices.front().traits;
  std::vector<ArtifactBuild> builds;
  std::set<std::string> planned;
  const auto chosen = [&](const std::vector<kernels::Config>& space) {
    return autotune::choose_configs(space, kind, {},
                                    max_configs > 0 ? max_configs : settings.tune_candidates);
  };
  const auto add = [&](const VariantSpace& of, const std::vector<kernels::Config>& configs) {
    for (const kernels::Config& config : configs) {
      const kernels::Config compiled = kernels::compiled_part(config, target.kind);
      const std::string name =
          std::format("{} {}", to_text(of.variant), kernels::to_text(compiled));
      if (!planned.insert(name).second) continue;
      builds.push_back({.target = target,
                        .variant = of.variant,
                        .vector_width = of.vector_width,
                        .config = compiled});
    }
  };
  for (const VariantSpace& space : spaces) {
    add(space, chosen(kernels::config_space(space.variant, traits, space.vector_width, kind)));
  }
  for (const launch::Problem& problem : problems) {
    const VariantSpace space{.variant = problem.variant, .vector_width = problem.vector_width};
    add(space, chosen(kernels::config_space(problem.variant, traits, problem.vector_width, kind,
                                            problem.largest_sizes())));
    for (const device::DeviceInfo& device : devices) add(space, answers(problem, device, parts));
  }
  // Tuning on a GPU compares outputs by a kernel.
  if (!problems.empty() && target.kind == kernels::DeviceKind::kCuda) {
    add({.variant = autotune::SetDifference::variant()}, {kernels::Config{}});
  }
  return builds;
}

}  // namespace dorajit::cli
