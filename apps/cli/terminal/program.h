// Runs the main function of a program: its streams, signals, exceptions and exit code.
#pragma once

#include <functional>

#include "apps/cli/terminal/exit_code.h"

namespace dorajit::cli {

// Runs a program and returns its exit code. An exception, or standard output that cannot be written
// completely, is printed as an error and makes the program fail. Call it before any file is opened.
int run_program(const std::function<ExitCode()>& run);

}  // namespace dorajit::cli
