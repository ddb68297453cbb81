// dorajit daemon
#pragma once

#include "apps/cli/commands/command.h"

namespace dorajit::cli {

// What dorajitd is doing, and its end.
class DaemonCommand final : public Command {
 public:
  CLI::App* declare(CLI::App& app) override;
  Result<ExitCode> run(const Invocation& invocation) override;

 private:
  bool watches_ = false;
  CLI::App* status_ = nullptr;
  CLI::App* metrics_ = nullptr;
  CLI::App* drain_ = nullptr;
};

}  // namespace dorajit::cli
