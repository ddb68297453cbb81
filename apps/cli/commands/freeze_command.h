// dorajit freeze
#pragma once

#include <string>
#include <vector>

#include "apps/cli/commands/command.h"
#include "apps/cli/options/device_choice.h"
#include "apps/cli/options/problem_options.h"
#include "autotune/engine_factory.h"
#include "cache/records/lock_file.h"

namespace dorajit::cli {

// Writes a lock file, or says how such files differ.
class FreezeCommand final : public Command {
 public:
  CLI::App* declare(CLI::App& app) override;
  Result<ExitCode> run(const Invocation& invocation) override;

 private:
  [[nodiscard]] Result<std::vector<launch::Problem>> wanted_problems(
      const ChosenDevice& chosen, cache::TuningStore& store) const;
  [[nodiscard]] Result<ExitCode> freeze(const Invocation& invocation) const;
  [[nodiscard]] Result<ExitCode> compare(const Invocation& invocation) const;
  [[nodiscard]] Result<ExitCode> check(const Invocation& invocation) const;

  ProblemOptions options_;
  std::string out_;
  std::vector<std::string> compared_;
  std::string checked_;
};

}  // namespace dorajit::cli
