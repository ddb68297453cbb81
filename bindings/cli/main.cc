#include <csignal>
#include <exception>

#include "bindings/cli/command_line.h"
#include "bindings/cli/interruption.h"
#include "bindings/cli/output.h"

int main(int argc, char** argv) {
  using dorajit::cli::ExitCode;
  try {
    std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error like a full disk
    dorajit::cli::clean_up_when_interrupted();
    dorajit::cli::CommandLine command_line;
    return static_cast<int>(command_line.run(argc, argv));
  } catch (const std::exception& error) {
    dorajit::cli::print_error(
        {.code = dorajit::StatusCode::kInternal, .message = error.what(), .log = {}});
    return static_cast<int>(ExitCode::kFailed);
  }
}
