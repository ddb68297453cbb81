#include <csignal>
#include <exception>

#include "apps/cli/terminal/output.h"
#include "apps/cli/terminal/standard_streams.h"
#include "apps/daemon/daemon_command_line.h"

int main(int argc, char** argv) {
  using dorajit::cli::ExitCode;
  dorajit::cli::reserve_standard_streams();
  try {
    std::signal(SIGPIPE, SIG_IGN);  // a write to a closed connection is an error, not the end
    std::signal(SIGXFSZ, SIG_IGN);  // and so is one beyond the file size limit
    return static_cast<int>(dorajit::daemon::run_daemon_command_line(argc, argv));
  } catch (const std::exception& error) {
    dorajit::cli::print_error(dorajit::StatusCode::kInternal, error.what());
    return static_cast<int>(ExitCode::kFailed);
  }
}
