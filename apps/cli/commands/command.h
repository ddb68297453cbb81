// One subcommand of the command line.
#pragma once

#include <string>

#include "apps/cli/terminal/exit_code.h"
#include "runtime/base/error.h"
#include "runtime/base/settings.h"

namespace CLI {  // NOLINT(readability-identifier-naming): not ours
class App;
}

namespace dorajit::cli {

// What every command is given.
struct Invocation {
  bool json = false;   // one JSON document on standard output, and nothing else there
  std::string device;  // "cpu", "cuda", "cuda:N"; empty: the best there is
  Settings settings;   // of the environment, with --cache-dir applied
};

class Command {
 public:
  virtual ~Command() = default;

  // Adds the subcommand with its options to the command line. This must outlive the parsing.
  virtual CLI::App* declare(CLI::App& app) = 0;

  // An error is printed by the caller, which turns its code into an exit code.
  virtual Result<ExitCode> run(const Invocation& invocation) = 0;
};

}  // namespace dorajit::cli
