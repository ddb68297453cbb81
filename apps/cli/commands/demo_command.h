// dorajit demo
#pragma once

#include <cstdint>
#include <vector>

#include "apps/cli/commands/command.h"
#include "apps/cli/options/variant_options.h"

namespace dorajit::cli {

// Tunes the compositions of real models and sets them against what they replace.
class DemoCommand final : public Command {
 public:
  CLI::App* declare(CLI::App& app) override;
  Result<ExitCode> run(const Invocation& invocation) override;

 private:
  bool quick_ = false;
  std::vector<std::int64_t> tokens_;
  VariantOptions variant_;
};

}  // namespace dorajit::cli
