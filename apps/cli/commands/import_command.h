// dorajit import
#pragma once

#include <string>
#include <vector>

#include "apps/cli/commands/command.h"

namespace dorajit::cli {

// Adds trials from files to the tuning database, and derives its winners.
class ImportCommand final : public Command {
 public:
  CLI::App* declare(CLI::App& app) override;
  Result<ExitCode> run(const Invocation& invocation) override;

 private:
  std::vector<std::string> files_;
  bool rebuild_ = false;
  bool partial_ = false;
};

}  // namespace dorajit::cli
