#include "apps/cli/command_line.h"

#include <CLI/CLI.hpp>
#include <filesystem>
#include <format>
#include <memory>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>

#include "apps/cli/commands/cache_command.h"
#include "apps/cli/commands/compile_command.h"
#include "apps/cli/commands/daemon_command.h"
#include "apps/cli/commands/demo_command.h"
#include "apps/cli/commands/devices_command.h"
#include "apps/cli/commands/doctor_command.h"
#include "apps/cli/commands/explain_command.h"
#include "apps/cli/commands/export_command.h"
#include "apps/cli/commands/freeze_command.h"
#include "apps/cli/commands/import_command.h"
#include "apps/cli/commands/prewarm_command.h"
#include "apps/cli/commands/report_command.h"
#include "apps/cli/commands/show_command.h"
#include "apps/cli/commands/tune_command.h"
#include "apps/cli/commands/verify_command.h"
#include "apps/cli/options/device_choice.h"
#include "apps/cli/terminal/output.h"

namespace dorajit::cli {
namespace {

std::string exit_codes_text() {
  std::string text = "Exit codes:";
  for (const ExitCodeMeaning& one : kExitCodes) {
    text += std::format("\n  {:<4} {}", one.code, one.meaning);
  }
  return text;
}

template <typename... Commands>
std::vector<std::unique_ptr<Command>> make_commands() {
  std::vector<std::unique_ptr<Command>> commands;
  (commands.push_back(std::make_unique<Commands>()), ...);
  return commands;
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
  add_global_options(*app_, options_);
  app_->set_version_flag("--version", std::string("dorajit ") + DORAJIT_VERSION,
                         "Print the version");
  app_->require_subcommand(1);
  app_->footer("Example:\n  dorajit demo --quick\n\n" + exit_codes_text());
  for (auto& command :
       make_commands<DevicesCommand, DoctorCommand, DemoCommand, CompileCommand, PrewarmCommand,
                     TuneCommand, ExplainCommand, ShowCommand, ReportCommand, FreezeCommand,
                     ExportCommand, ImportCommand, VerifyCommand, CacheCommand, DaemonCommand>()) {
    CLI::App* app = command->declare(*app_);
    add_global_options(*app, options_);
    for (CLI::App* subcommand : app->get_subcommands([](CLI::App*) { return true; })) {
      add_global_options(*subcommand, options_);
    }
    commands_.push_back({.command = std::move(command), .app = app});
  }
}

CommandLine::~CommandLine() = default;

// Understood before the command and after it.
void CommandLine::add_global_options(CLI::App& app, GlobalOptions& options) {
  app.add_option("--cache-dir", options.cache_dir,
                 "Where kernels and winners are kept [DORAJIT_CACHE_DIR]")
      ->option_text("DIR");
  app.add_option("--device", options.device,
                 "The device to work on [CUDA device 0 if there is one, else cpu]")
      ->option_text("cpu|cuda|cuda:N");
  app.add_flag("--json", options.json, "Print one JSON document");
}

Result<Invocation> CommandLine::make_invocation() const {
  DORAJIT_TRY(parse_device(options_.device));
  Invocation invocation{.json = options_.json, .device = options_.device, .settings = {}};
  DORAJIT_ASSIGN(invocation.settings, Settings::from_environment());
  // A record is of what an application meets, and may be the very file that a command reads.
  invocation.settings.record_path.clear();
  // A command is there to wait for its winners.
  if (invocation.settings.tune_policy == TunePolicy::kAutomatic) {
    invocation.settings.tune_policy = TunePolicy::kFirstUse;
  }
  if (!options_.cache_dir.empty()) {
    std::error_code error;
    invocation.settings.cache_dir = std::filesystem::absolute(options_.cache_dir, error).string();
    if (error) {
      return fail(StatusCode::kIoError,
                  std::format("--cache-dir {}: {}", options_.cache_dir, error.message()));
    }
  }
  return invocation;
}

ExitCode CommandLine::run_command(Command& command) {
  const auto outcome = [&]() -> Result<ExitCode> {
    DORAJIT_ASSIGN(const Invocation invocation, make_invocation());
    return command.run(invocation);
  }();
  if (outcome) return *outcome;
  print_error(outcome.error());
  if (options_.json) print_document(Json{{"error", to_json(outcome.error())}});
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
  for (const Declared& one : commands_) {
    if (one.app->parsed()) return run_command(*one.command);
  }
  return ExitCode::kUsage;
}

}  // namespace dorajit::cli
