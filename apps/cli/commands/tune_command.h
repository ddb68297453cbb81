// dorajit tune
#pragma once

#include <optional>
#include <string>

#include "apps/cli/commands/command.h"
#include "apps/cli/options/problem_options.h"

namespace dorajit::cli {

// Finds the fastest config of problems and keeps it.
class TuneCommand final : public Command {
 public:
  CLI::App* declare(CLI::App& app) override;
  Result<ExitCode> run(const Invocation& invocation) override;

 private:
  ProblemOptions options_;
  std::string shard_;              // "2/8"; empty: all
  std::optional<double> seconds_;  // per problem; without it as the settings have it
  bool force_ = false;
};

}  // namespace dorajit::cli
