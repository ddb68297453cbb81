#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <format>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/cli/bench/comparison.h"
#include "apps/cli/commands/commands.h"
#include "apps/cli/options/device_choice.h"
#include "apps/cli/options/variant_options.h"
#include "apps/cli/terminal/output.h"
#include "apps/cli/terminal/progress_bar.h"
#include "apps/cli/terminal/table.h"
#include "apps/cli/views/descriptions.h"
#include "autotune/engine_factory.h"
#include "kernel_templates/config.h"
#include "kernel_templates/registry.h"
#include "runtime/launch/config_source.h"

namespace dorajit::cli {
namespace {

// The linear layers of a transformer block with so many output features.
struct DemoModel {
  std::string_view name;
  struct Layers {
    std::string_view projections;  // "q/o/down"
    std::int64_t out_features;
  };
  std::vector<Layers> layers;
};

// A composition of tokens x out_features, and the layers that need it.
struct DemoLayer {
  std::int64_t tokens = 0;
  std::int64_t out_features = 0;

  struct Use {
    std::string_view model;
    std::string_view projections;
  };
  std::vector<Use> uses{};
};

struct DemoRow {
  DemoLayer layer;
  launch::Problem problem;
  launch::ConfigAnswer answer;
  Comparison comparison;
};

struct DemoReport {
  kernels::Variant variant;
  std::vector<DemoRow> rows;
  int failed = 0;  // problems; their errors were printed before
  double seconds = 0;
};

std::span<const DemoModel> demo_models() {
  static const std::vector<DemoModel> models = {
      {"Llama-3.1-8B", {{"k/v", 1024}, {"q/o/down", 4096}, {"gate/up", 14336}}},
      {"Qwen3-8B", {{"k/v", 1024}, {"q/o/down", 4096}, {"gate/up", 12288}}},
      {"Mistral-Small-24B", {{"k/v", 1024}, {"q", 4096}, {"o/down", 5120}, {"gate/up", 32768}}}};
  return models;
}

// Each size once, in ascending order of tokens, then of features.
std::vector<DemoLayer> demo_layers(std::span<const DemoModel> models,
                                   std::span<const std::int64_t> tokens) {
  std::map<std::pair<std::int64_t, std::int64_t>, DemoLayer> by_size;
  for (const std::int64_t count : tokens) {
    for (const DemoModel& model : models) {
      for (const auto& [projections, out_features] : model.layers) {
        DemoLayer& layer = by_size[{count, out_features}];
        layer.tokens = count;
        layer.out_features = out_features;
        layer.uses.push_back({.model = model.name, .projections = projections});
      }
    }
  }
  std::vector<DemoLayer> layers;
  for (auto& [size, layer] : by_size) layers.push_back(std::move(layer));
  return layers;
}

// "Llama-3.1-8B q/o/down, Qwen3-8B q/o/down"
std::string to_text(std::span<const DemoLayer::Use> uses) {
  std::string text;
  for (const auto& [model, projections] : uses) {
    text += std::format("{}{} {}", text.empty() ? "" : ", ", model, projections);
  }
  return text;
}

double geometric_mean(const std::vector<DemoRow>& rows, double (Comparison::*ratio)() const) {
  double sum = 0;
  for (const DemoRow& row : rows) sum += std::log((row.comparison.*ratio)());
  return rows.empty() ? 0 : std::exp(sum / static_cast<double>(rows.size()));
}

std::string rows_text(const std::vector<DemoRow>& rows) {
  Table table({{"rows x cols", Align::kRight},
               {"default config"},
               {"winner"},
               {"time", Align::kRight},
               {"over default", Align::kRight},
               {"over unfused", Align::kRight},
               {"GB/s", Align::kRight},
               {"of copy", Align::kRight},
               {"from"},
               {"layers"}});
  for (const DemoRow& row : rows) {
    const Comparison& comparison = row.comparison;
    table.add_row({std::format("{} x {}", comparison.sizes.front(), row.layer.out_features),
                   to_text(comparison.default_config), to_text(comparison.winner_config),
                   duration_text(comparison.winner.median_ns),
                   ratio_text(comparison.over_default()), ratio_text(comparison.over_unfused()),
                   bandwidth_text(comparison.bytes_per_ns()),
                   percent_text(comparison.share_of_copy()), std::string(name(row.answer.origin)),
                   to_text(row.layer.uses)});
  }
  table.add_row({"geometric mean", "", "", "",
                 ratio_text(geometric_mean(rows, &Comparison::over_default)),
                 ratio_text(geometric_mean(rows, &Comparison::over_unfused)), "",
                 percent_text(geometric_mean(rows, &Comparison::share_of_copy)), "", ""});
  return table.text();
}

std::string fewer_rows_note(const std::vector<DemoRow>& rows) {
  std::string note;
  for (const DemoRow& row : rows) {
    if (row.comparison.sizes.front() == row.layer.tokens) continue;
    note += std::format(
        "{} x {} was measured on {} rows: scratch memory is limited "
        "(DORAJIT_SCRATCH_BYTES)\n",
        row.layer.tokens, row.layer.out_features, row.comparison.sizes.front());
  }
  return note;
}

// Whether every config was a known winner, and nothing was compiled or tuned.
bool is_all_known(const DemoReport& report, const Engine& engine) {
  const Statistics& done = engine.statistics();
  return report.failed == 0 && done.compilations == 0 && done.trials == 0 &&
         std::ranges::all_of(report.rows, [](const DemoRow& row) {
           return row.answer.origin == launch::ConfigOrigin::kUserDatabase;
         });
}

std::string work_text(const DemoReport& report, const autotune::EngineParts& parts) {
  const Statistics& done = parts.engine->statistics();
  if (is_all_known(report, *parts.engine)) {
    return std::format("nothing compiled, nothing tuned: all {} came from {}\n",
                       count_text(std::ssize(report.rows), "winner"), parts.store->location());
  }
  return std::format("{}; {} compiled, {} taken from the artifact store; {} measured for {}\n",
                     where_winners_are(*parts.store), count_text(done.compilations, "kernel"),
                     done.artifact_hits.load(), count_text(done.trials, "trial"),
                     count_text(done.tuned_problems, "tuned problem"));
}

Json measurement_json(const autotune::Measurement& measured) {
  return {{"median_ns", measured.median_ns},
          {"mad_ns", measured.mad_ns},
          {"samples", measured.samples}};
}

Json row_json(const DemoRow& row) {
  const Comparison& comparison = row.comparison;
  Json layers = Json::array();
  for (const DemoLayer::Use& use : row.layer.uses) {
    layers.push_back({{"model", use.model}, {"projections", use.projections}});
  }
  Json standard = {{"config", to_text(comparison.default_config)}};
  standard.update(measurement_json(comparison.default_run));
  Json winner = {{"config", to_text(comparison.winner_config)}};
  winner.update(measurement_json(comparison.winner));
  return {{"problem", to_text(row.problem)},
          {"rows", row.layer.tokens},
          {"cols", row.layer.out_features},
          {"measured_rows", comparison.sizes.front()},
          {"operand_sets", comparison.sets},
          {"layers", std::move(layers)},
          {"source", name(row.answer.origin)},
          {"trials", row.answer.trials},
          {"default", std::move(standard)},
          {"winner", std::move(winner)},
          {"unfused", measurement_json(comparison.unfused)},
          {"copy", measurement_json(comparison.copy)},
          {"bytes", comparison.bytes},
          {"speedup_over_default", comparison.over_default()},
          {"speedup_over_unfused", comparison.over_unfused()},
          {"gigabytes_per_second", comparison.bytes_per_ns()},
          {"share_of_copy", comparison.share_of_copy()}};
}

std::string demo_text(const DemoReport& report, const ChosenDevice& device,
                      const autotune::EngineParts& parts) {
  const device::DeviceInfo& info = device.device->info();
  std::string text =
      std::format("{} ({}), {}\n\n", info.name, device_text(device.id), to_text(report.variant));
  if (!report.rows.empty()) text += rows_text(report.rows) + "\n";
  text += fewer_rows_note(report.rows);
  if (report.failed > 0) text += count_text(report.failed, "problem") + " failed\n";
  text += work_text(report, parts);
  return text + std::format(
                    "{} in {:.1f} s\n"
                    "a training step beside PEFT's, with PyTorch: python3 "
                    "benchmarks/layers.py --ranks 16\n",
                    count_text(std::ssize(report.rows), "problem"), report.seconds);
}

Json demo_json(const DemoReport& report, const ChosenDevice& device,
               const autotune::EngineParts& parts) {
  Json rows = Json::array();
  for (const DemoRow& row : report.rows) rows.push_back(row_json(row));
  return {{"device", to_json(device.id, device.device->info())},
          {"variant", to_text(report.variant)},
          {"problems", std::move(rows)},
          {"geometric_means",
           {{"speedup_over_default", geometric_mean(report.rows, &Comparison::over_default)},
            {"speedup_over_unfused", geometric_mean(report.rows, &Comparison::over_unfused)},
            {"share_of_copy", geometric_mean(report.rows, &Comparison::share_of_copy)}}},
          {"failed", report.failed},
          {"all_known", is_all_known(report, *parts.engine)},
          {"statistics", to_json(parts.engine->statistics())},
          {"database", describe(*parts.store)},
          {"seconds", report.seconds}};
}

constexpr std::int64_t kTokens[] = {1, 512, 4096};
constexpr std::int64_t kQuickTokens[] = {1, 512};
constexpr double kQuickTuneSeconds = 0.5;
constexpr double kSeconds = 1.5;  // of measurement per problem
constexpr double kQuickSeconds = 0.25;

Result<DemoRow> do_problem(const DemoLayer& layer, const kernels::Variant& variant,
                           const ChosenDevice& chosen, Engine& engine, double seconds,
                           ProgressBar& progress) {
  const kernels::Sizes sizes = {layer.tokens, layer.out_features};  // of a composition
  const launch::Problem problem = launch::make_problem(variant, chosen.id.kind, sizes);
  progress.show(std::format("tuning {} x {}", layer.tokens, layer.out_features));
  DORAJIT_ASSIGN(const launch::ConfigAnswer answer, engine.prepare(problem, chosen.id));
  progress.advance();
  progress.show(std::format("measuring {} x {}", layer.tokens, layer.out_features));
  DORAJIT_ASSIGN(const Comparison comparison,
                 compare(engine, *chosen.device, problem, answer.config,
                         {.sizes = sizes, .seconds = seconds}));
  progress.advance();
  return DemoRow{.layer = layer, .problem = problem, .answer = answer, .comparison = comparison};
}

struct DemoOptions {
  bool quick = false;
  std::vector<std::int64_t> tokens;
  VariantOptions variant;
};

Result<ExitCode> run_demo(const Invocation& invocation, const DemoOptions& options) {
  DORAJIT_ASSIGN(const kernels::Variant variant, make_variant(options.variant));
  const auto start = std::chrono::steady_clock::now();
  Settings settings = invocation.settings;
  if (options.quick) settings.tune_seconds = std::min(settings.tune_seconds, kQuickTuneSeconds);
  const auto parts = autotune::make_engine(settings);
  Engine& engine = *parts.engine;
  DORAJIT_ASSIGN(const ChosenDevice chosen, choose_device(engine, invocation.device));

  const std::span<const std::int64_t> usual = options.quick
                                                  ? std::span<const std::int64_t>(kQuickTokens)
                                                  : std::span<const std::int64_t>(kTokens);
  const auto layers =
      demo_layers(options.quick ? demo_models().first(1) : demo_models(),
                  options.tokens.empty() ? usual : std::span<const std::int64_t>(options.tokens));
  DemoReport report{.variant = variant, .rows = {}};
  {
    ProgressBar progress(!invocation.json, 2 * static_cast<int>(layers.size()));
    for (const DemoLayer& layer : layers) {
      auto row = do_problem(layer, variant, chosen, engine,
                            options.quick ? kQuickSeconds : kSeconds, progress);
      if (row) {
        report.rows.push_back(*std::move(row));
        continue;
      }
      print_error(row.error());
      ++report.failed;
    }
  }
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
  report.seconds = spent.count();
  Json fields = demo_json(report, chosen, parts);
  fields["quick"] = options.quick;
  print_result(invocation.json, "demo", fields, demo_text(report, chosen, parts));
  return report.failed == 0 ? ExitCode::kOk : ExitCode::kFailed;
}

}  // namespace

void declare_demo(CLI::App& app, std::vector<Command>& commands) {
  const auto [command, options] = add_command<DemoOptions>(
      app, commands, "demo",
      "Tune the layers of real models and compare with what the kernels replace",
      "dorajit demo --quick --type bf16", run_demo);
  command.add_flag("--quick", options.quick, "One model, fewer tokens, short measurements");
  command
      .add_option("--tokens", options.tokens,
                  "Rows to do, as in 1,512,4096 [that; 1,512 with --quick]")
      ->option_text("N,...")
      ->delimiter(',')
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 24));
  add_variant_options(command, options.variant);
}

}  // namespace dorajit::cli
