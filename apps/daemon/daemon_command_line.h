// dorajitd
#pragma once

#include "apps/cli/terminal/exit_code.h"

namespace dorajit::daemon {

cli::ExitCode run_daemon_command_line(int argc, char** argv);

}  // namespace dorajit::daemon
