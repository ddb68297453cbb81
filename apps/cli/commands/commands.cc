#include "apps/cli/commands/commands.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <format>
#include <ranges>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

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
  print_error(StatusCode::kInvalidArgument, std::format("{}; see `{}`", what, help));
  return ExitCode::kUsage;
}

// The options of every command.
struct GlobalOptions {
  std::string cache_dir;
  std::string device;
  bool json = false;
};

// To the command line and every subcommand: they may stand before its name and after it.
void add_global_options(CLI::App& app, GlobalOptions& options) {
  app.add_option("--cache-dir", options.cache_dir,
                 "Where kernels and winners are kept [DORAJIT_CACHE_DIR]")
      ->option_text("DIR");
  app.add_option(
         "--device", options.device,
         "The device to work on [CUDA device 0 if there is one, else cpu]; `show`, `report`, "
         "`export` and `forget` also take a part of a fingerprint")
      ->option_text("cpu|cuda|cuda:N");
  app.add_flag("--json", options.json, "Print one JSON document");
  for (CLI::App* subcommand : app.get_subcommands([](CLI::App*) { return true; })) {
    add_global_options(*subcommand, options);
  }
}

Result<Invocation> make_invocation(const Command& command, const GlobalOptions& options) {
  if (!command.filters_by_device) DORAJIT_TRY(parse_device(options.device));
  Invocation invocation{.json = options.json, .device = options.device, .settings = {}};
  DORAJIT_ASSIGN(invocation.settings, Settings::from_environment());
  // Only an application's problems are recorded, and a command may be reading that very file.
  invocation.settings.record_path.clear();
  // A command waits for its winners instead of asking the daemon for them.
  if (invocation.settings.tune_policy == TunePolicy::kAutomatic) {
    invocation.settings.tune_policy = TunePolicy::kFirstUse;
  }
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

ExitCode run_command(const Command& command, const GlobalOptions& options) {
  const auto outcome = [&]() -> Result<ExitCode> {
    DORAJIT_ASSIGN(const Invocation invocation, make_invocation(command, options));
    autotune::serve_kept_kernels(invocation.settings);
    return command.run(invocation);
  }();
  if (outcome) return *outcome;
  print_error(outcome.error());
  if (options.json) print_document(Json{{"error", to_json(outcome.error())}});
  return exit_code_of(outcome.error().code);
}

// Help with no line of more than 100 characters. CLI11 begins descriptions in column 30.
std::string folded(const std::string& help) {
  constexpr std::size_t kWidth = 100;
  constexpr std::size_t kColumn = 30;
  std::string text;
  for (const auto part : std::views::split(help, '\n')) {
    std::string line{std::string_view(part)};
    while (line.size() > kWidth) {
      const std::size_t end = line.find_last_of(" |,", kWidth - 1);
      if (end == std::string::npos || end <= kColumn) break;
      text += line.substr(0, line[end] == ' ' ? end : end + 1) + "\n";
      line.replace(0, end + 1, std::string(kColumn, ' '));
    }
    text += line + "\n";
  }
  text.pop_back();
  return text;
}

// The arguments, the last one first, as CLI11 takes them. `help COMMAND` asks for `COMMAND --help`,
// and so does nothing for the whole.
std::vector<std::string> words_of(int argc, char** argv) {
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  if (words.empty() || words.front() == "help") {
    if (!words.empty()) words.erase(words.begin());
    words.emplace_back("--help");
  }
  std::ranges::reverse(words);
  return words;
}

}  // namespace

ExitCode run_command_line(int argc, char** argv) {
  CLI::App app("Fused DoRA kernels, compiled and tuned for this machine's devices.", "dorajit");
  GlobalOptions options;
  std::vector<Command> commands;
  app.set_version_flag("--version", std::string("dorajit ") + DORAJIT_VERSION, "Print the version");
  app.require_subcommand(1);
  app.footer("Example:\n  dorajit demo --quick\n\n" + exit_codes_text());
  for (const auto declare :
       {declare_doctor, declare_demo, declare_prewarm, declare_tune, declare_explain, declare_show,
        declare_report, declare_forget, declare_pin, declare_freeze, declare_export, declare_import,
        declare_cache, declare_daemon, declare_run}) {
    declare(app, commands);
  }
  add_global_options(app, options);
  try {
    app.parse(words_of(argc, argv));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) return refuse(app, error);
    std::ostringstream text;  // the help or the version
    app.exit(error, text, text);
    print(folded(text.str()));
    return ExitCode::kOk;
  }
  for (const Command& command : commands) {
    if (command.app->parsed()) return run_command(command, options);
  }
  return ExitCode::kUsage;
}

}  // namespace dorajit::cli
