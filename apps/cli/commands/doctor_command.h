// dorajit doctor
#pragma once

#include "apps/cli/commands/command.h"

namespace dorajit::cli {

// Checks every piece that dorajit needs and says what to do about those that are missing.
class DoctorCommand final : public Command {
 public:
  CLI::App* declare(CLI::App& app) override;
  Result<ExitCode> run(const Invocation& invocation) override;
};

}  // namespace dorajit::cli
