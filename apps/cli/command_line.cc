#include "apps/cli/command_line.h"

#include <CLI/CLI.hpp>
#include <filesystem>
#include <format>
#include <memory>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>

#include "apps/cli/options/device_choice.h"
#include "apps/cli/terminal/output.h"
#include "autotune/engine_factory.h"

namespace dorajit::cli {
namespace {

std::string exit_codes_text() {
  std::string text = "Exit codes:";
  for (const ExitCodeMeaning& one : kExitCodes) {
    text += std::format("\n  {:<4} {}", one.code, one.meaning);
  }
  return text;
}

ExitCode refuse(const CLI::App& app, const CLI::ParseError& error) {
  std::string what = error.what();
  std::string help = "dorajit --help";
  const auto chosen = app.get_subcommands();
  if (!chosen.empty()) {
    help = std::format("dorajit {} --help", chosen.front()->get_name());
  } else if (const auto rest = app.remaining(); !rest.empty()) {
    what = std::format("there is no command '{}'", rest.front());
  } else if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr) {
    what = "no command is given";
  }
  print_error({.code = StatusCode::kInvalidArgument,
               .message = std::format("{}; see `{}`", what, help),
               .log = {}});
  return ExitCode::kUsage;
}

}  // namespace

CommandLine::CommandLine()
    : app_(std::make_unique<CLI::App>(
          "Fused DoRA kernels, compiled and tuned for the device at hand.", "dorajit")) {
  app_->set_version_flag("--version", std::string("dorajit ") + DORAJIT_VERSION,
                         "Print the version");
  app_->require_subcommand(1);
  app_->footer("Example:\n  dorajit demo --quick\n\n" + exit_codes_text());
  for (const auto declare :
       {declare_doctor, declare_demo, declare_prewarm, declare_tune, declare_explain, declare_show,
        declare_report, declare_forget, declare_pin, declare_freeze, declare_export, declare_import,
        declare_cache, declare_daemon}) {
    declare(*app_, commands_);
  }
  add_global_options(*app_);
}

CommandLine::~CommandLine() = default;

// To the command line and every subcommand: they may stand before its name and after it.
void CommandLine::add_global_options(CLI::App& app) {
  app.add_option("--cache-dir", cache_dir_,
                 "Where kernels and winners are kept [DORAJIT_CACHE_DIR]")
      ->option_text("DIR");
  app.add_option(
         "--device", device_,
         "The device to work on [CUDA device 0 if there is one, else cpu]; `show`, `report`, "
         "`export` and `forget` also take a part of a fingerprint")
      ->option_text("cpu|cuda|cuda:N");
  app.add_flag("--json", json_, "Print one JSON document");
  for (CLI::App* subcommand : app.get_subcommands([](CLI::App*) { return true; })) {
    add_global_options(*subcommand);
  }
}

Result<Invocation> CommandLine::make_invocation(const Command& command) const {
  if (!command.filters_by_device) DORAJIT_TRY(parse_device(device_));
  Invocation invocation{.json = json_, .device = device_, .settings = {}};
  DORAJIT_ASSIGN(invocation.settings, Settings::from_environment());
  // Only an application's problems are recorded, and a command may be reading that very file.
  invocation.settings.record_path.clear();
  // A command waits for its winners instead of asking the daemon for them.
  if (invocation.settings.tune_policy == TunePolicy::kAutomatic) {
    invocation.settings.tune_policy = TunePolicy::kFirstUse;
  }
  if (!cache_dir_.empty()) {
    std::error_code error;
    invocation.settings.cache_dir = std::filesystem::absolute(cache_dir_, error).string();
    if (error) {
      return fail(StatusCode::kIoError,
                  std::format("--cache-dir {}: {}", cache_dir_, error.message()));
    }
  }
  return invocation;
}

ExitCode CommandLine::run_command(const Command& command) const {
  const auto outcome = [&]() -> Result<ExitCode> {
    DORAJIT_ASSIGN(const Invocation invocation, make_invocation(command));
    autotune::serve_kept_kernels(invocation.settings);
    return command.run(invocation);
  }();
  if (outcome) return *outcome;
  print_error(outcome.error());
  if (json_) print_document(Json{{"error", to_json(outcome.error())}});
  return exit_code_of(outcome.error().code);
}

ExitCode CommandLine::run(int argc, char** argv) {
  try {
    app_->parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) return refuse(*app_, error);
    std::ostringstream text;  // the help or the version
    app_->exit(error, text, text);
    print(text.str());
    return ExitCode::kOk;
  }
  for (const Command& command : commands_) {
    if (command.app->parsed()) return run_command(command);
  }
  return ExitCode::kUsage;
}

}  // namespace dorajit::cli
