// The command line of `dorajit`: its subcommands, parsed and run.
#pragma once

#include "apps/cli/terminal/exit_code.h"

namespace dorajit::cli {

// Parses the arguments of main() and runs the command that they name.
ExitCode run_command_line(int argc, char** argv);

}  // namespace dorajit::cli
