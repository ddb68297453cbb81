// dorajit prewarm
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/cli/build/prewarm_problems.h"
#include "apps/cli/build/prewarm_report.h"
#include "apps/cli/commands/command.h"
#include "apps/cli/options/device_choice.h"
#include "autotune/engine_factory.h"

namespace dorajit::cli {

// Makes the problems of a model ready for devices that need not be here, and tunes them on one that
// is.
class PrewarmCommand final : public Command {
 public:
  CLI::App* declare(CLI::App& app) override;
  Result<ExitCode> run(const Invocation& invocation) override;

 private:
  [[nodiscard]] Status list(const Invocation& invocation, const PrewarmProblems& problems) const;

  // What is to be compiled for each target; with a device if it is one of them and is to tune.
  [[nodiscard]] Result<PrewarmReport> plan(const PrewarmProblems& problems,
                                           const std::vector<compile::Target>& targets,
                                           const std::optional<ChosenDevice>& here,
                                           const autotune::EngineParts& parts) const;

  std::vector<std::string> archs_;
  PrewarmOptions options_;
  std::optional<double> seconds_;  // per problem; without it as the settings have it
  int configs_ = 0;                // 0: as the settings have it
  int jobs_ = 0;                   // 0: one per processor
  bool compile_only_ = false;
  bool list_only_ = false;
};

}  // namespace dorajit::cli
