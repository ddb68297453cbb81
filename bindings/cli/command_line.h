// The whole command line: global options, choice of command, errors to exit codes.
#pragma once

#include "bindings/cli/exit_code.h"

namespace dorajit::cli {

ExitCode run_command_line(int argc, char** argv);

}  // namespace dorajit::cli
