// dorajit show
#pragma once

#include <string>

#include "apps/cli/commands/command.h"

namespace dorajit::cli {

// Lists the winners of the tuning database.
class ShowCommand final : public Command {
 public:
  CLI::App* declare(CLI::App& app) override;
  Result<ExitCode> run(const Invocation& invocation) override;

 private:
  std::string fingerprint_;
  bool with_trials_ = false;
};

}  // namespace dorajit::cli
