// The whole command line: global options, choice of command, errors to exit codes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "apps/cli/commands/commands.h"
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
  void add_global_options(CLI::App& app);
  [[nodiscard]] Result<Invocation> make_invocation(const Command& command) const;
  [[nodiscard]] ExitCode run_command(const Command& command) const;

  std::unique_ptr<CLI::App> app_;
  std::string cache_dir_;
  std::string device_;
  bool json_ = false;
  std::vector<Command> commands_;
};

}  // namespace dorajit::cli
