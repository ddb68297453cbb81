#include "apps/cli/terminal/program.h"
#include "apps/daemon/daemon_command_line.h"

int main(int argc, char** argv) {
  return dorajit::cli::run_program(
      [&] { return dorajit::daemon::run_daemon_command_line(argc, argv); });
}
