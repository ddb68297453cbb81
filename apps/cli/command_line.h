// The whole command line: global options, choice of command, errors to exit codes.
#pragma once

#include "apps/cli/terminal/exit_code.h"

namespace dorajit::cli {

ExitCode run_command_line(int argc, char** argv);

}  // namespace dorajit::cli
