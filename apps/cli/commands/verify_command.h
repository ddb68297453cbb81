// dorajit verify
#pragma once

#include <string>

#include "apps/cli/commands/command.h"

namespace dorajit::cli {

// Checks a tuning database or a file of trials, and changes nothing.
class VerifyCommand final : public Command {
 public:
  CLI::App* declare(CLI::App& app) override;
  Result<ExitCode> run(const Invocation& invocation) override;

 private:
  std::string path_;
};

}  // namespace dorajit::cli
