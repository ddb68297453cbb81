#include "apps/cli/commands/commands.h"
#include "apps/cli/terminal/output.h"

int main(int argc, char** argv) {
  return dorajit::cli::run_program([&] { return dorajit::cli::run_command_line(argc, argv); });
}
