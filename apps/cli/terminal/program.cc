#include "apps/cli/terminal/program.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <exception>
#include <initializer_list>

#include "apps/cli/terminal/output.h"

namespace dorajit::cli {
namespace {

// Occupies those that are closed: otherwise a file that is opened later gets the number, and output
// is written into it. Writing to a closed standard output still fails.
void reserve_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) >= 0 || errno != EBADF) continue;
    // open() takes the lowest free number, which is the stream's. Standard output is opened for
    // reading, so that lost output is an error; lost messages on standard error are ignored.
    (void)!::open("/dev/null", stream == STDERR_FILENO ? O_WRONLY : O_RDONLY);
  }
}

}  // namespace

int run_program(const std::function<ExitCode()>& run) {
  reserve_standard_streams();
  std::signal(SIGXFSZ, SIG_IGN);  // a write beyond the file size limit is an error, not the end
  std::signal(SIGPIPE, SIG_IGN);  // and so is one to a closed pipe or connection
  ExitCode code = ExitCode::kFailed;
  try {
    code = run();
  } catch (const std::exception& error) {
    print_error(StatusCode::kInternal, error.what());
  }
  if (const auto finished = finish_output(); !finished) {
    print_error(finished.error());
    if (code == ExitCode::kOk) code = ExitCode::kFailed;
  }
  return static_cast<int>(code);
}

}  // namespace dorajit::cli
