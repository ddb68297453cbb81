// dorajit report
#pragma once

#include <string>
#include <vector>

#include "apps/cli/commands/command.h"

namespace dorajit::cli {

// Shows tuning data as a page for browsers, or as one JSON document.
class ReportCommand final : public Command {
 public:
  CLI::App* declare(CLI::App& app) override;
  Result<ExitCode> run(const Invocation& invocation) override;

 private:
  std::string html_;
  std::vector<std::string> files_;
  std::string fingerprint_;
  bool partial_ = false;
};

}  // namespace dorajit::cli
