// dorajit export
#pragma once

#include <string>
#include <vector>

#include "apps/cli/commands/command.h"

namespace dorajit::cli {

// Writes trials of the tuning database, or of files, to one file.
class ExportCommand final : public Command {
 public:
  CLI::App* declare(CLI::App& app) override;
  Result<ExitCode> run(const Invocation& invocation) override;

 private:
  std::string out_;
  std::vector<std::string> files_;
  std::string fingerprint_;
  bool ship_ = false;
  bool partial_ = false;
};

}  // namespace dorajit::cli
