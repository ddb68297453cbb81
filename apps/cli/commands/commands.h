// The command line of `dorajit`, and its subcommands.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "apps/cli/terminal/output.h"
#include "runtime/base/error.h"
#include "runtime/base/settings.h"

namespace dorajit::cli {

// What every command is given.
struct Invocation {
  bool json = false;   // one JSON document on standard output, and nothing else there
  std::string device;  // the value of --device; empty: the best there is, or all
  Settings settings;   // of the environment, with --cache-dir applied
};

struct Command {
  CLI::App* app = nullptr;  // whether it was chosen, after parsing
  // An error is printed by the caller, which turns its code into an exit code.
  std::function<Result<ExitCode>(const Invocation&)> run;
  // Whether --device selects records (DeviceFilter), and need not name a device of this machine.
  bool filters_by_device = false;
};

// Of a command that has none.
struct NoOptions {};

// A subcommand, and the options that `run` is called with after parsing.
template <class Options>
struct DeclaredCommand {
  CLI::App& app;
  Options& options;
};

// Adds a subcommand to a group, or to the program. `examples` is shown below its help.
template <class Options, class Run>
DeclaredCommand<Options> add_command(CLI::App& group, std::vector<Command>& commands,
                                     const std::string& name, const std::string& what,
                                     const std::string& examples, Run run,
                                     bool filters_by_device = false) {
  CLI::App* app = group.add_subcommand(name, what);
  app->footer("Example:\n  " + examples);
  const auto options = std::make_shared<Options>();
  commands.push_back(
      {.app = app,
       .run = [options, run](const Invocation& invocation) { return run(invocation, *options); },
       .filters_by_device = filters_by_device});
  return {.app = *app, .options = *options};
}

// Each adds a subcommand with its options, or a group of them, to the command line.
void declare_cache(CLI::App& app, std::vector<Command>& commands);
void declare_daemon(CLI::App& app, std::vector<Command>& commands);
void declare_demo(CLI::App& app, std::vector<Command>& commands);
void declare_doctor(CLI::App& app, std::vector<Command>& commands);
void declare_explain(CLI::App& app, std::vector<Command>& commands);
void declare_export(CLI::App& app, std::vector<Command>& commands);
void declare_forget(CLI::App& app, std::vector<Command>& commands);
void declare_freeze(CLI::App& app, std::vector<Command>& commands);
void declare_import(CLI::App& app, std::vector<Command>& commands);
void declare_pin(CLI::App& app, std::vector<Command>& commands);
void declare_prewarm(CLI::App& app, std::vector<Command>& commands);
void declare_report(CLI::App& app, std::vector<Command>& commands);
void declare_run(CLI::App& app, std::vector<Command>& commands);
void declare_show(CLI::App& app, std::vector<Command>& commands);
void declare_tune(CLI::App& app, std::vector<Command>& commands);

// Parses the arguments of main() and runs the command that they name.
ExitCode run_command_line(int argc, char** argv);

}  // namespace dorajit::cli
