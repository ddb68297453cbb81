// dorajit export
#pragma once

#include <string>

#include "bindings/cli/command.h"

namespace dorajit::cli {

// Writes the trials of the tuning database as text.
class ExportCommand final : public Command {
 public:
  CLI::App* declare(CLI::App& app) override;
  Result<ExitCode> run(const Invocation& invocation) override;

 private:
  std::string out_;
  std::string device_name_;
};

}  // namespace dorajit::cli
