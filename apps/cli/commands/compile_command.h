// dorajit compile
#pragma once

#include <string>
#include <vector>

#include "apps/cli/commands/command.h"
#include "apps/cli/options/variant_options.h"

namespace dorajit::cli {

// Compiles a space of configs for architectures that need not be on this machine.
class CompileCommand final : public Command {
 public:
  CLI::App* declare(CLI::App& app) override;
  Result<ExitCode> run(const Invocation& invocation) override;

 private:
  std::vector<std::string> archs_;
  VariantOptions variant_;
  std::string space_;  // empty: as the settings have it
  int jobs_ = 0;       // 0: one per processor
  bool all_alignments_ = false;
  bool refuse_spills_ = false;
};

}  // namespace dorajit::cli
