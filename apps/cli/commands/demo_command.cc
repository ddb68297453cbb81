#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <format>
#include <memory>
#include <span>
#include <vector>

#include "apps/cli/bench/demo_report.h"
#include "apps/cli/commands/commands.h"
#include "apps/cli/options/variant_options.h"
#include "apps/cli/terminal/output.h"
#include "apps/cli/terminal/progress_bar.h"
#include "autotune/engine_factory.h"

namespace dorajit::cli {
namespace {

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
