#include <csignal>
#include <exception>

#include "apps/cli/terminal/output.h"
#include "apps/cli/terminal/standard_streams.h"
#include "apps/daemon/daemon_command_line.h"

int main(int argc, char** argv) {
  using dorajit::cli::ExitCode;
  dorajit::cli::reserve_standard_streams();
  try {
    std::signal(SIGPIPE, SIG_IGN);  // so is a reader that has gone
    std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error like a full disk
    return static_cast<int>(dorajit::daemon::run_daemon_command_line(argc, argv));
  } catch (const std::exception& error) {
    dorajit::cli::print_error(
        {.code = dorajit::StatusCode::kInternal, .message = error.what(), .log = {}});
    return static_cast<int>(ExitCode::kFailed);
  }
}
