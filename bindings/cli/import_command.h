// dorajit import
#pragma once

#include <string>
#include <vector>

#include "bindings/cli/command.h"

namespace dorajit::cli {

// Adds trials from files to the tuning database.
class ImportCommand final : public Command {
 public:
  CLI::App* declare(CLI::App& app) override;
  Result<ExitCode> run(const Invocation& invocation) override;

 private:
  std::vector<std::string> files_;
  std::string folder_;
};

}  // namespace dorajit::cli
