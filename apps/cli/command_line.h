// The whole command line: global options, choice of command, errors to exit codes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "apps/cli/commands/command.h"
#include "apps/cli/terminal/exit_code.h"

namespace dorajit::cli {

// Every command with its options, declared once.
class CommandLine {
 public:
  CommandLine();
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  ExitCode run(int argc, char** argv);

 private:
  struct GlobalOptions {
    std::string cache_dir;
    std::string device;
    bool json = false;
  };
  struct Declared {
    std::unique_ptr<Command> command;
    CLI::App* app = nullptr;
  };

  static void add_global_options(CLI::App& app, GlobalOptions& options);
  [[nodiscard]] Result<Invocation> make_invocation() const;
  ExitCode run_command(Command& command);

  std::unique_ptr<CLI::App> app_;
  GlobalOptions options_;
  std::vector<Declared> commands_;
};

}  // namespace dorajit::cli
