#include "bindings/cli/command_line.h"

#include <CLI/CLI.hpp>
#include <array>
#include <cstddef>
#include <filesystem>
#include <format>
#include <memory>
#include <string>
#include <system_error>

#include "bindings/cli/cache_command.h"
#include "bindings/cli/compile_command.h"
#include "bindings/cli/demo_command.h"
#include "bindings/cli/device_choice.h"
#include "bindings/cli/devices_command.h"
#include "bindings/cli/doctor_command.h"
#include "bindings/cli/explain_command.h"
#include "bindings/cli/export_command.h"
#include "bindings/cli/import_command.h"
#include "bindings/cli/merge_command.h"
#include "bindings/cli/output.h"
#include "bindings/cli/prewarm_command.h"
#include "bindings/cli/show_command.h"
#include "bindings/cli/tune_command.h"
#include "bindings/cli/verify_command.h"

namespace dorajit::cli {
namespace {

struct GlobalOptions {
  std::string cache_dir;
  std::string device;
  bool json = false;
};

// Understood before the command and after it.
void add_global_options(CLI::App& app, GlobalOptions& options) {
  app.add_option("--cache-dir", options.cache_dir,
                 "Where kernels and winners are kept [DORAJIT_CACHE_DIR]")
      ->option_text("DIR");
  app.add_option("--device", options.device,
                 "cpu, cuda or cuda:N [CUDA device 0 if there is one, else cpu]")
      ->option_text("DEVICE");
  app.add_flag("--json", options.json, "Print one JSON document");
}

Result<Invocation> make_invocation(const GlobalOptions& options) {
  DORAJIT_TRY(parse_device(options.device));
  Invocation invocation{.json = options.json, .device = options.device, .settings = {}};
  DORAJIT_ASSIGN(invocation.settings, Settings::from_environment());
  // A record is of what an application meets, and may be the very file that a command reads.
  invocation.settings.record_path.clear();
  if (!options.cache_dir.empty()) {
    std::error_code error;
    invocation.settings.cache_dir = std::filesystem::absolute(options.cache_dir, error).string();
    if (error) {
      return fail(StatusCode::kIoError,
                  std::format("--cache-dir {}: {}", options.cache_dir, error.message()));
    }
  }
  return invocation;
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

ExitCode run_command(Command& command, const GlobalOptions& options) {
  const auto outcome = [&]() -> Result<ExitCode> {
    DORAJIT_ASSIGN(const Invocation invocation, make_invocation(options));
    return command.run(invocation);
  }();
  if (outcome) return *outcome;
  print_error(outcome.error());
  if (options.json) print_document(Json{{"error", to_json(outcome.error())}});
  return exit_code_of(outcome.error().code);
}

}  // namespace

ExitCode run_command_line(int argc, char** argv) {
  CLI::App app("Fused DoRA kernels, compiled and tuned for the device at hand.", "dorajit");
  GlobalOptions options;
  add_global_options(app, options);
  app.set_version_flag("--version", std::string("dorajit ") + DORAJIT_VERSION);
  app.require_subcommand(1);
  app.footer(
      "Example:\n  dorajit demo --quick\n\nExit codes: 0 done, 1 failed, 2 wrong usage, "
      "3 not available on this machine.");

  std::array<std::unique_ptr<Command>, 13> commands = {
      std::make_unique<DevicesCommand>(), std::make_unique<DoctorCommand>(),
      std::make_unique<DemoCommand>(),    std::make_unique<CompileCommand>(),
      std::make_unique<PrewarmCommand>(), std::make_unique<TuneCommand>(),
      std::make_unique<ExplainCommand>(), std::make_unique<ShowCommand>(),
      std::make_unique<ExportCommand>(),  std::make_unique<ImportCommand>(),
      std::make_unique<MergeCommand>(),   std::make_unique<VerifyCommand>(),
      std::make_unique<CacheCommand>()};
  std::array<CLI::App*, commands.size()> declared{};
  for (std::size_t i = 0; i < commands.size(); ++i) {
    declared[i] = commands[i]->declare(app);
    add_global_options(*declared[i], options);
  }

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) return refuse(app, error);
    app.exit(error);  // prints the help or the version
    return ExitCode::kOk;
  }
  for (std::size_t i = 0; i < commands.size(); ++i) {
    if (declared[i]->parsed()) return run_command(*commands[i], options);
  }
  return ExitCode::kUsage;
}

}  // namespace dorajit::cli
