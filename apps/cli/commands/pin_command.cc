#include <CLI/CLI.hpp>
#include <format>
#include <string>
#include <vector>

#include "apps/cli/commands/commands.h"
#include "apps/cli/options/device_choice.h"
#include "apps/cli/options/problem_options.h"
#include "apps/cli/terminal/output.h"
#include "apps/cli/views/descriptions.h"
#include "apps/cli/views/pin_comparison.h"
#include "autotune/engine_factory.h"
#include "autotune/sources/pinned_config.h"
#include "kernel_templates/config_text.h"

namespace dorajit::cli {
namespace {

// The config is compiled and loaded, which shows that it runs.
Result<cache::Pin> make_pin(const launch::Problem& problem, const kernels::Config& config,
                            const ChosenDevice& chosen, Engine& engine) {
  auto pin = autotune::pin_of(problem, config, *chosen.device, engine.kernels());
  if (!pin) {
    pin.error().message = std::format("{}: {}", to_text(problem), pin.error().message);
  } else if (pin->config != config) {
    return fail(StatusCode::kNoCompiler,
                std::format("{}: without a compiler only {} runs here, the library's own kernel; "
                            "set DORAJIT_CXX to a C++20 compiler",
                            to_text(problem), to_text(pin->config)));
  }
  return pin;
}

struct PinOptions {
  ProblemOptions problems;
  std::string config;
  bool removes = false;
};

Result<ExitCode> run_pin(const Invocation& invocation, const PinOptions& options) {
  DORAJIT_TRY(check_problem_options(options.problems, "pin"));
  if (options.config.empty() && !options.removes) {
    return fail(StatusCode::kInvalidArgument, "pin needs --config CONFIG or --remove");
  }
  const auto config = kernels::parse_config(options.config);
  if (!config && !options.removes) {
    return fail(
        StatusCode::kInvalidArgument,
        std::format("--config {} is not a config, as b2048-w8-r1-v8-u1-c0 is; `dorajit show "
                    "--trials` lists some",
                    options.config));
  }
  const auto parts = autotune::make_engine(invocation.settings);
  const cache::Pins& pins = parts.store->pins();
  DORAJIT_ASSIGN(const ChosenDevice chosen, choose_device(*parts.engine, invocation.device));
  DORAJIT_ASSIGN(const auto problems, make_problems(options.problems, chosen.id.kind, "pin"));
  Json rows = Json::array();
  std::string text;
  for (const launch::Problem& problem : problems) {
    const std::string key = to_text(problem);
    if (options.removes) {
      DORAJIT_ASSIGN(const bool was_pinned, pins.remove(chosen.device->info().fingerprint, key));
      rows.push_back({{"problem", key}, {"was_pinned", was_pinned}});
      text += std::format("{}: {}\n", key, was_pinned ? "not pinned any more" : "was not pinned");
      continue;
    }
    DORAJIT_ASSIGN(const cache::Pin pin, make_pin(problem, *config, chosen, *parts.engine));
    DORAJIT_TRY(pins.add(pin));
    rows.push_back(to_json(pin));
    text += std::format("{}: pinned to {}\n", key, options.config);
  }
  return print_result(invocation.json, "pin",
                      {{"device", to_json(chosen.id, chosen.device->info())},
                       {options.removes ? "removed" : "pinned", rows}},
                      text);
}

}  // namespace

void declare_pin(CLI::App& app, std::vector<Command>& commands) {
  const auto [command, options] = add_command<PinOptions>(
      app, commands, "pin", "Make a problem run one config, whatever was measured",
      "dorajit pin --shape 4096x14336 --config b2048-w8-r1-v8-u1-c0\n"
      "  dorajit pin --shape 4096x14336 --remove",
      run_pin);
  add_problem_options(command, options.problems);
  CLI::Option* config =
      command.add_option("--config", options.config, "The config, as `show` names it");
  config->option_text("CONFIG");
  command.add_flag("--remove", options.removes, "Let the problem run its winner again")
      ->excludes(config);
}

}  // namespace dorajit::cli
