// The subcommands of the command line, each in a file of its name.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "apps/cli/terminal/exit_code.h"
#include "runtime/base/error.h"
#include "runtime/base/settings.h"

namespace CLI {  // NOLINT(readability-identifier-naming): not ours
class App;
}

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
void declare_show(CLI::App& app, std::vector<Command>& commands);
void declare_tune(CLI::App& app, std::vector<Command>& commands);

}  // namespace dorajit::cli
