#include <csignal>
#include <exception>

#include "apps/cli/command_line.h"
#include "apps/cli/terminal/interruption.h"
#include "apps/cli/terminal/output.h"
#include "apps/cli/terminal/standard_streams.h"

namespace {

using dorajit::cli::ExitCode;

ExitCode run(int argc, char** argv) {
  try {
    dorajit::cli::clean_up_when_interrupted();
    return dorajit::cli::run_command_line(argc, argv);
  } catch (const std::exception& error) {
    dorajit::cli::print_error(dorajit::StatusCode::kInternal, error.what());
    return ExitCode::kFailed;
  }
}

}  // namespace

int main(int argc, char** argv) {
  dorajit::cli::reserve_standard_streams();
  std::signal(SIGXFSZ, SIG_IGN);  // a write beyond the file size limit is an error, not the end
  std::signal(SIGPIPE, SIG_IGN);  // and so is one to a closed pipe
  ExitCode code = run(argc, argv);
  if (const auto finished = dorajit::cli::finish_output(); !finished) {
    dorajit::cli::print_error(finished.error());
    if (code == ExitCode::kOk) code = ExitCode::kFailed;
  }
  return static_cast<int>(code);
}
