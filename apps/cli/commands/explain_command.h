// dorajit explain
#pragma once

#include "apps/cli/commands/command.h"
#include "apps/cli/options/problem_options.h"

namespace dorajit::cli {

// Says which config problems run, where it comes from, and why not from elsewhere.
class ExplainCommand final : public Command {
 public:
  CLI::App* declare(CLI::App& app) override;
  Result<ExitCode> run(const Invocation& invocation) override;

 private:
  ProblemOptions options_;
};

}  // namespace dorajit::cli
