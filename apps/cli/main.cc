#include "apps/cli/command_line.h"
#include "apps/cli/terminal/program.h"

int main(int argc, char** argv) {
  return dorajit::cli::run_program([&] { return dorajit::cli::run_command_line(argc, argv); });
}
