// Declares one subcommand.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "apps/cli/commands/commands.h"

namespace dorajit::cli {

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

}  // namespace dorajit::cli
